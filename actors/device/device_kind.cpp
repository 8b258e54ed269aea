#include "actors/device/device_kind.h"

namespace troupe {

const kernels::Backend* backend_of(std::string_view kind) {
  return kind == "cuda" ? kernels::cuda_backend() : nullptr;
}

std::vector<Numerics> numerics_of(std::string_view kind, CpuFamily family) {
  if (kind == "cpu") return numerics_of(family);
  return {Numerics::kBf16KvFp8, Numerics::kBf16, Numerics::kCudaMmaKvFp8, Numerics::kCudaMma};
}

}  // namespace troupe
