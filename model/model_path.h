#pragma once

#include <string>

#include "runtime/result.h"

namespace troupe {

/// kNotFound unless a folder or a file is there; a model's name on the hub is told how to get it.
Status check_model_path(const std::string& model);

/// Whether it has the form of such a name: "deepseek-ai/DeepSeek-V3". A path may have it, too.
bool is_hub_name(const std::string& model);

}  // namespace troupe
