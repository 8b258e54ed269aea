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
  kAvx512Bf16 = 6,  ///< version 1 of `avx512_bf16`: faster where AMX is not, other bits
  kAvx512Bf16KvFp8 = 7,
};

/// "reference", "bf16", "bf16+kv_fp8", "avx512_bf16", "avx512_bf16+kv_fp8".
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
  const bool fp8 = n == Numerics::kBf16KvFp8 || n == Numerics::kAvx512Bf16KvFp8;
  return fp8 ? DType::kF8E4M3 : wire_type(n);
}
/// Whether products sum a block's pairs of k in one chain, not the even and the odd k apart.
constexpr bool sums_in_one_chain(Numerics n) {
  return n == Numerics::kAvx512Bf16 || n == Numerics::kAvx512Bf16KvFp8;
}

}  // namespace troupe
