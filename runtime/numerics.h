#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe {

/// A kernel family. It defines every bit of every number that the cluster computes, so all members
/// of a cluster run the same one.
enum class Numerics : std::uint8_t {
  kReference,   ///< plain float32, everywhere
  kAvx2,        ///< AVX2 + FMA + F16C; float32 sums
  kAvx512Bf16,  ///< AVX-512 with bf16 dot products
  kAmxBf16,     ///< AMX bf16 tiles
};

inline constexpr int kNumericsCount = 4;

/// "reference", "avx2", "avx512_bf16", "amx_bf16".
std::string_view to_string(Numerics numerics);
std::optional<Numerics> parse_numerics(std::string_view name);

/// The families that this processor can run, slowest first; `reference` always leads.
const std::vector<Numerics>& supported_numerics();

/// How activations travel between nodes, and how the KV cache holds them.
enum class WireType : std::uint8_t { kF32, kBf16 };

/// `reference` keeps float32 everywhere; every other family rounds to bf16.
constexpr WireType wire_type(Numerics n) {
  return n == Numerics::kReference ? WireType::kF32 : WireType::kBf16;
}
constexpr std::size_t wire_size(WireType t) { return t == WireType::kF32 ? 4 : 2; }

}  // namespace troupe
