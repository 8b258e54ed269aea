#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// How a made checkpoint stores its matrices.
enum class RandomFormat : std::uint8_t {
  kBf16,
  kFp8,   ///< blocks of 128 x 128, as DeepSeek-V3's
  kInt4,  ///< compressed-tensors' pack-quantized, groups of 32, as Kimi K2 Thinking's
};

std::optional<RandomFormat> parse_random_format(std::string_view name);

/// config.json with the quantization_config of a format. `file` names it in errors.
Result<std::string> config_in_format(std::string_view json, const std::string& file,
                                     RandomFormat format);

}  // namespace troupe
