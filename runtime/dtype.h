#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace troupe {

/// How a number is stored: in a checkpoint, in a tensor, on the wire.
enum class DType : std::uint8_t {
  kBool,
  kU8,
  kI8,
  kF8E4M3,
  kF8E5M2,
  kF8E8M0,  ///< a power of two: exponent + 127
  kI16,
  kU16,
  kF16,
  kBf16,
  kI32,
  kU32,
  kF32,
  kI64,
  kU64,
  kF64,
};

/// Bytes of one number.
std::size_t dtype_size(DType dtype);
/// As in a safetensors header: "BF16".
std::string_view to_string(DType dtype);
std::optional<DType> parse_dtype(std::string_view name);

}  // namespace troupe
