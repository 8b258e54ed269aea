#include "runtime/cpu_family.h"

#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>

namespace troupe {
namespace {

constexpr std::array<std::string_view, 4> kNames = {"baseline", "avx2", "avx512", "amx"};

/// AMX needs the kernel's permission once a process (arch_prctl ARCH_REQ_XCOMP_PERM).
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool bf16 = d & (1u << 22), tile = d & (1u << 24);
  if (!bf16 || !tile) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<CpuFamily> detect() {
  std::vector<CpuFamily> found = {CpuFamily::kBaseline};
  __builtin_cpu_init();
  if (!__builtin_cpu_supports("avx2") || !__builtin_cpu_supports("fma") ||
      !__builtin_cpu_supports("f16c"))
    return found;
  found.push_back(CpuFamily::kAvx2);
  if (!__builtin_cpu_supports("avx512f") || !__builtin_cpu_supports("avx512bw") ||
      !__builtin_cpu_supports("avx512vl") || !__builtin_cpu_supports("avx512dq") ||
      !__builtin_cpu_supports("avx512vbmi") || !__builtin_cpu_supports("avx512bf16"))
    return found;
  found.push_back(CpuFamily::kAvx512);
  if (has_amx_bf16()) found.push_back(CpuFamily::kAmx);
  return found;
}

}  // namespace

std::string_view to_string(CpuFamily family) { return kNames[static_cast<std::size_t>(family)]; }

std::optional<CpuFamily> parse_cpu_family(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<CpuFamily>(i);
  return std::nullopt;
}

const std::vector<CpuFamily>& supported_cpu_families() {
  static const std::vector<CpuFamily> found = detect();
  return found;
}

}  // namespace troupe
