#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/cpu_family.h"
#include "runtime/dtype.h"

namespace troupe {

/// What defines every bit of every number that a cluster computes (kernels/README.md), so all its
/// members run the same. The value is what nodes compare: a change of a definition is a new value.
enum class Numerics : std::uint8_t {
  kReference = 0,  ///< plain float32, everywhere
  // 1 to 3 were families of instructions, each with bits of its own.
  kBf16 = 4,       ///< version 1 of `bf16`: the same bits on every processor
  kBf16KvFp8 = 5,  ///< the same with a KV cache of e4m3
};

/// "reference", "bf16", "bf16+kv_fp8".
std::string_view to_string(Numerics numerics);
std::optional<Numerics> parse_numerics(std::string_view name);
/// Whether a number that came from outside is one.
bool is_numerics(std::uint8_t value);
/// "reference, bf16".
std::string in_words(std::span<const Numerics> numerics);

/// All of them: what is chosen where members have several is the last.
std::span<const Numerics> all_numerics();
/// What these instructions can compute, in the same order.
std::vector<Numerics> numerics_of(CpuFamily family);

/// How activations travel between nodes: `reference` keeps float32 everywhere.
constexpr DType wire_type(Numerics n) {
  return n == Numerics::kReference ? DType::kF32 : DType::kBf16;
}
/// How the KV cache holds them.
constexpr DType kv_type(Numerics n) {
  return n == Numerics::kBf16KvFp8 ? DType::kF8E4M3 : wire_type(n);
}

}  // namespace troupe
