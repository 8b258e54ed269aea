#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

namespace troupe {

/// Which instructions the kernels use. All give the same bits.
enum class CpuFamily : std::uint8_t {
  kBaseline,  ///< plain C++: `reference` only
  kAvx2,      ///< AVX2, FMA, F16C: since Haswell and Zen
  kAvx512,    ///< F, BW, DQ, VL, VBMI, BF16: since Sapphire Rapids and Zen 4
  kAmx,       ///< the same with AMX tiles of bf16: since Sapphire Rapids
};

/// "baseline", "avx2", "avx512", "amx".
std::string_view to_string(CpuFamily family);
std::optional<CpuFamily> parse_cpu_family(std::string_view name);

/// Those that this processor has, slowest first; kBaseline always leads.
const std::vector<CpuFamily>& supported_cpu_families();

}  // namespace troupe
