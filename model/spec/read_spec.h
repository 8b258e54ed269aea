#pragma once

#include <string>
#include <string_view>

#include "model/spec/model_spec.h"
#include "runtime/result.h"

namespace troupe {

/// A model from its config.json: every value has been checked. `file` names it in errors, which say
/// the key and what was expected. Weights have the formats that the config tells of; bind_spec()
/// looks what the checkpoint has.
Result<ModelSpec> parse_model_spec(std::string_view json, const std::string& file);

/// The text of FOLDER/config.json; without one it is no model's folder.
Result<std::string> read_config(const std::string& folder);

/// Reads FOLDER/config.json, or the metadata of a GGUF file (model/gguf/gguf.h).
Result<ModelSpec> load_model_spec(const std::string& folder);

}  // namespace troupe
