// What is built where there is no nvcc.
#include "kernels/backend.h"
#include "kernels/cuda/gpus.h"

namespace troupe::kernels {

const Backend* cuda_backend() { return nullptr; }

Result<std::vector<Gpu>> gpus() {
  return unavailable(
      "this program is built without CUDA; build it where the CUDA toolkit (nvcc) is installed");
}

}  // namespace troupe::kernels
