#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/placement.h"

namespace troupe {

/// The long parts of the status as JSON text: where each copy of an expert is, and what each expert
/// had to do. A large cluster has tens of thousands of both; as a tree of JSON values they cost the
/// head many times as much.
///
///     [{"layer":3,"slots":[{"expert":0,"device":"node-1/0"}]}]
std::string placement_text(const std::vector<LayerExperts>& layers);
///     [{"layer":3,"tokens":[12,0,7]}]
std::string load_text(const std::map<std::int32_t, std::vector<float>>& tokens);

}  // namespace troupe
