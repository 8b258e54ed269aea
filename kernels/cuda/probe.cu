#include "kernels/cuda/device.h"
#include "kernels/cuda/gpu_accelerator.h"

namespace troupe::kernels::cuda {
namespace {

struct Nothing {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  DEVICE void operator()(Cta&) const {}
};

}  // namespace

cudaError_t has_code() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, run<Nothing>);
}

}  // namespace troupe::kernels::cuda
