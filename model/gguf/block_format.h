#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/dtype.h"

namespace troupe {

/// How GGUF stores quantised numbers: in blocks, each with its scales (ggml's ggml-quants.c).
struct BlockFormat {
  std::string_view name;  ///< "Q4_K"
  std::int64_t numbers;   ///< in a block
  std::int64_t bytes;     ///< of a block
  /// What one block holds, in float32.
  void (*expand)(const std::uint8_t* block, float* out);
};

/// A tensor's type in a GGUF file: plain numbers, or blocks of them, which are read as float32.
struct GgufType {
  std::uint32_t id;
  DType dtype;
  const BlockFormat* blocks;  ///< null: plain
};

/// Null: one that cannot be read.
const GgufType* gguf_type(std::uint32_t id);
/// "Q2_K", or "type 99", of any.
std::string gguf_type_name(std::uint32_t id);
/// "F32, F16, ...": those that can be read.
std::string gguf_types_in_words();

}  // namespace troupe
