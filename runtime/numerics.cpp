#include "runtime/numerics.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cpuid.h>

namespace troupe {
namespace {

constexpr std::array<std::string_view, kNumericsCount> kNames = {"reference", "avx2", "avx512_bf16",
                                                                 "amx_bf16"};

/// AMX needs the kernel's permission once a process (arch_prctl ARCH_REQ_XCOMP_PERM).
bool has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (!__get_cpuid_count(7, 0, &a, &b, &c, &d)) return false;
  const bool bf16 = d & (1u << 22), tile = d & (1u << 24);
  if (!bf16 || !tile) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}

std::vector<Numerics> detect() {
  std::vector<Numerics> found = {Numerics::kReference};
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma"))
    found.push_back(Numerics::kAvx2);
  const bool avx512 = __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
                      __builtin_cpu_supports("avx512vl") && __builtin_cpu_supports("avx512dq") &&
                      __builtin_cpu_supports("avx512bf16");
  if (avx512) found.push_back(Numerics::kAvx512Bf16);
  if (avx512 && has_amx_bf16()) found.push_back(Numerics::kAmxBf16);
  return found;
}

}  // namespace

std::string_view to_string(Numerics n) { return kNames[static_cast<std::size_t>(n)]; }

std::optional<Numerics> parse_numerics(std::string_view name) {
  for (std::size_t i = 0; i < kNames.size(); ++i)
    if (kNames[i] == name) return static_cast<Numerics>(i);
  return std::nullopt;
}

const std::vector<Numerics>& supported_numerics() {
  static const std::vector<Numerics> found = detect();
  return found;
}

}  // namespace troupe
