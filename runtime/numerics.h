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
  kBf16 = 4,        ///< version 1 of `bf16`: the same bits on every processor
  kBf16KvFp8 = 5,   ///< the same with a KV cache of e4m3
  kAvx512Bf16 = 6,  ///< version 1 of `avx512_bf16`: faster where AMX is not, other bits
  kAvx512Bf16KvFp8 = 7,
  kCudaMma = 8,  ///< version 1 of `cuda_mma`: what a GPU's tensor cores add up, other bits
  kCudaMmaKvFp8 = 9,
};

/// "reference", "bf16", "bf16+kv_fp8", "avx512_bf16", "avx512_bf16+kv_fp8", "cuda_mma",
/// "cuda_mma+kv_fp8".
std::string_view to_string(Numerics numerics);
std::optional<Numerics> parse_numerics(std::string_view name);
/// Whether a number that came from outside is one.
bool is_numerics(std::uint8_t value);
/// "reference, bf16".
std::string in_words(std::span<const Numerics> numerics);

std::span<const Numerics> all_numerics();
/// All that are defined bit by bit, and processors compute: what is chosen where members have
/// several is the last. The others are chosen by name alone.
std::span<const Numerics> exact_numerics();
/// What these instructions can compute, in the same order.
std::vector<Numerics> numerics_of(CpuFamily family);

/// How activations travel between nodes: `reference` keeps float32 everywhere.
constexpr DType wire_type(Numerics n) {
  return n == Numerics::kReference ? DType::kF32 : DType::kBf16;
}
/// How the KV cache holds them.
constexpr DType kv_type(Numerics n) {
  const bool fp8 =
      n == Numerics::kBf16KvFp8 || n == Numerics::kAvx512Bf16KvFp8 || n == Numerics::kCudaMmaKvFp8;
  return fp8 ? DType::kF8E4M3 : wire_type(n);
}
/// Whether products sum a block's pairs of k in one chain, not the even and the odd k apart.
constexpr bool sums_in_one_chain(Numerics n) {
  return n == Numerics::kAvx512Bf16 || n == Numerics::kAvx512Bf16KvFp8;
}
/// Whether products are what tensor cores make of them.
constexpr bool by_tensor_cores(Numerics n) {
  return n == Numerics::kCudaMma || n == Numerics::kCudaMmaKvFp8;
}
/// The same with a KV cache of e4m3; `reference` has none.
constexpr Numerics with_kv_fp8(Numerics n) {
  if (sums_in_one_chain(n)) return Numerics::kAvx512Bf16KvFp8;
  if (by_tensor_cores(n)) return Numerics::kCudaMmaKvFp8;
  return n == Numerics::kReference ? n : Numerics::kBf16KvFp8;
}

}  // namespace troupe
