#include "runtime/numerics.h"

#include <array>

namespace troupe {
namespace {

constexpr std::array<Numerics, 7> kAll = {
    Numerics::kReference, Numerics::kAvx512Bf16KvFp8, Numerics::kAvx512Bf16, Numerics::kBf16KvFp8,
    Numerics::kBf16,      Numerics::kCudaMmaKvFp8,    Numerics::kCudaMma};
constexpr std::size_t kExact = 5;  // come first

}  // namespace

std::span<const Numerics> all_numerics() { return kAll; }
std::span<const Numerics> exact_numerics() { return {kAll.data(), kExact}; }

std::string_view to_string(Numerics n) {
  switch (n) {
    case Numerics::kReference:
      return "reference";
    case Numerics::kBf16:
      return "bf16";
    case Numerics::kBf16KvFp8:
      return "bf16+kv_fp8";
    case Numerics::kAvx512Bf16:
      return "avx512_bf16";
    case Numerics::kAvx512Bf16KvFp8:
      return "avx512_bf16+kv_fp8";
    case Numerics::kCudaMma:
      return "cuda_mma";
    case Numerics::kCudaMmaKvFp8:
      return "cuda_mma+kv_fp8";
  }
  return "unknown";
}

std::optional<Numerics> parse_numerics(std::string_view name) {
  for (const Numerics n : kAll)
    if (to_string(n) == name) return n;
  return std::nullopt;
}

bool is_numerics(std::uint8_t value) {
  for (const Numerics n : kAll)
    if (static_cast<std::uint8_t>(n) == value) return true;
  return false;
}

std::string in_words(std::span<const Numerics> numerics) {
  std::string words;
  for (const Numerics n : numerics)
    words += (words.empty() ? "" : ", ") + std::string(to_string(n));
  return words.empty() ? "none" : words;
}

/// All but `reference` are defined by fused multiply-adds; those of pairs in one chain are only
/// computed by the instruction that does so.
std::vector<Numerics> numerics_of(CpuFamily family) {
  if (family == CpuFamily::kBaseline) return {Numerics::kReference};
  std::vector<Numerics> all;
  for (const Numerics n : exact_numerics())
    if (!sums_in_one_chain(n) || family >= CpuFamily::kAvx512) all.push_back(n);
  return all;
}

}  // namespace troupe
