#include "tools/troupe/plan/device_kinds.h"

#include <algorithm>
#include <iterator>

#include "runtime/edit_distance.h"

namespace troupe {
namespace {

constexpr double kGB = 1e9, kTB = 1e12, kTFlops = 1e12;

/// TB/s of memory; TFLOP/s of float32 without tensor cores, bf16 and FP8 with them, sums in
/// float32 and without sparsity; GB/s each way to other nodes and within one.
constexpr Ceilings ceilings(double memory, double fma, double bf16, double fp8, double network,
                            double link) {
  return {memory * kTB, fma * kTFlops, bf16 * kTFlops, fp8 * kTFlops, network * kGB, link * kGB};
}

/// From the vendors' data sheets: NVIDIA A10, L4, L40S, A100, H100, H200, HGX B200 (where sheets
/// give rates with sparsity, half of them), H20 as its partners publish it; NVIDIA's Ada and RTX
/// Blackwell white papers for GeForce; AMD Instinct MI300X. Links: the sum of both ways of NVLink
/// or Infinity Fabric halved, else PCIe x16. Networks: one NIC a GPU as in the vendors' own systems
/// (DGX A100: 200 Gbit/s; DGX H100, H200, B200 and MI300X platforms: 400 Gbit/s); other kinds have
/// none that is usual.
constexpr DeviceKind kKinds[] = {
    {"a10-24g", 23028, ceilings(0.600, 31.2, 125, 0, 0, 32)},
    {"l4-24g", 23034, ceilings(0.300, 30.3, 121, 242.5, 0, 32)},
    {"rtx4090-24g", 24564, ceilings(1.008, 82.6, 165.2, 330.3, 0, 32)},
    {"rtx5090-32g", 32607, ceilings(1.792, 104.8, 209.5, 419, 0, 64)},
    {"a100-40g", 40960, ceilings(1.555, 19.5, 312, 0, 25, 300)},
    {"l40s-48g", 46068, ceilings(0.864, 91.6, 362, 733, 0, 32)},
    {"a100-80g", 81920, ceilings(2.039, 19.5, 312, 0, 25, 300)},
    {"h100-80g", 81559, ceilings(3.35, 67, 989.4, 1978.9, 50, 450)},
    {"h20-96g", 97871, ceilings(4.0, 44, 148, 296, 50, 450)},
    {"h200-141g", 143771, ceilings(4.8, 67, 989.4, 1978.9, 50, 450)},
    {"b200-180g", 183359, ceilings(8.0, 75, 2250, 4500, 50, 900)},
    {"b200-192g", 183359, ceilings(8.0, 75, 2250, 4500, 50, 900)},
    {"mi300x-192g", 196592, ceilings(5.3, 163.4, 1307.4, 2614.9, 50, 448)},
};

}  // namespace

const DeviceKind* find_device_kind(std::string_view name) {
  const auto found = std::find_if(std::begin(kKinds), std::end(kKinds),
                                  [&](const DeviceKind& kind) { return kind.name == name; });
  return found == std::end(kKinds) ? nullptr : found;
}

std::string known_device_kinds() {
  std::string names;
  for (const DeviceKind& kind : kKinds)
    names += (names.empty() ? "" : ", ") + std::string(kind.name);
  return names;
}

std::string nearest_device_kind(std::string_view name) {
  // "h100" means "h100-80g", though other names are as short.
  const auto edits = [&](const DeviceKind& kind) {
    return kind.name.starts_with(name) && !name.empty() ? 0 : 1 + edit_distance(name, kind.name);
  };
  return std::string(std::min_element(std::begin(kKinds), std::end(kKinds),
                                      [&](const DeviceKind& a, const DeviceKind& b) {
                                        return edits(a) < edits(b);
                                      })
                         ->name);
}

}  // namespace troupe
