#include "kernels/cuda/gpu_accelerator.h"

namespace troupe::kernels::cuda {
namespace {

__global__ void nothing() {}

}  // namespace

cudaError_t has_code() {
  cudaFuncAttributes attributes;
  return cudaFuncGetAttributes(&attributes, nothing);
}

}  // namespace troupe::kernels::cuda
