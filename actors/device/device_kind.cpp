#include "actors/device/device_kind.h"

#include "kernels/cuda/twin/backend.h"

namespace troupe {

const kernels::Backend* backend_of(std::string_view kind) {
  if (kind == "cuda") return kernels::cuda_backend();
  return kind == "cuda-twin" ? kernels::cuda_twin_backend() : nullptr;
}

std::vector<Numerics> numerics_of(std::string_view kind, CpuFamily family) {
  if (kind == "cpu") return numerics_of(family);
  return {Numerics::kBf16KvFp8, Numerics::kBf16, Numerics::kCudaMmaKvFp8, Numerics::kCudaMma};
}

bool is_device_kind(std::string_view kind) { return kind == "cpu" || backend_of(kind) != nullptr; }

}  // namespace troupe
