#pragma once

#include <map>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe {

inline constexpr const char* kWeightIndex = "model.safetensors.index.json";

/// Which *.safetensors files of a folder are its checkpoint.
///
///     the index names them, and decides which tensor is in which;
///     where there is none, or none of its files: model.safetensors;
///     else all of model-NNNNN-of-NNNNN.safetensors; else all there are
struct WeightMap {
  std::vector<std::string> files;            ///< by name, those that are there
  std::map<std::string, std::string> index;  ///< tensor to file; empty: there is no index
  std::vector<std::string> beside;           ///< files that are none of them
};

/// kNotFound if there are none. Whether they hold what the index says is seen when they are read.
Result<WeightMap> find_weight_files(const std::string& folder);

}  // namespace troupe
