#pragma once

#include <string>
#include <vector>

namespace troupe::fuzz {

/// Good inputs that are made rather than kept as files; each fuzz target has its own, or none.
std::vector<std::string> made_seeds();

}  // namespace troupe::fuzz
