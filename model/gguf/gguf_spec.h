#pragma once

#include <string>

#include "model/gguf/gguf.h"
#include "model/spec/model_spec.h"
#include "runtime/result.h"

namespace troupe {

/// The model that a file's metadata describes, with the tensors' names as in the file: the same
/// spec as config.json would give. The frequencies' factors are read from the file's tensor
/// elsewhere (kGgufRopeFactors).
Result<ModelSpec> gguf_spec(const GgufHeader& header, const std::string& file);

/// The tensor that stretches each pair's wavelength, where a file has one (Llama 3.1).
inline constexpr const char* kGgufRopeFactors = "rope_freqs.weight";

}  // namespace troupe
