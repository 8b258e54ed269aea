// The host's part of the CUDA back-end that no kernel is in.
#include <cuda_runtime_api.h>

#include <cstdlib>
#include <new>

#include "kernels/backend.h"
#include "kernels/cuda/gpu_accelerator.h"
#include "kernels/cuda/gpu_pins.h"
#include "kernels/cuda/gpu_work.h"
#include "runtime/log.h"

namespace troupe::kernels {
namespace cuda {

Backend backend(bool plain, std::string_view name);  // table.cu
void launch(Stream& stream, const Work& kernel);     // for gpu.h
std::size_t shared_bytes(Stream& stream);            // the same
bool has_wgmma(Stream& stream);                      // the same

namespace {

/// Memory that moves to whoever touches it, so that hosts fill it and read it.
std::shared_ptr<std::byte> managed_memory(std::size_t bytes) {
  void* data = nullptr;
  if (cudaMallocManaged(&data, bytes) != cudaSuccess) std::__throw_bad_alloc();
  return {static_cast<std::byte*>(data), [](std::byte* p) { cudaFree(p); }};
}

bool reaches_host() {
  int value = 0;
  return cudaDeviceGetAttribute(&value, cudaDevAttrPageableMemoryAccess, 0) == cudaSuccess &&
         value != 0;
}

void must(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  logger().critical("the GPU: {}: {}; restart the worker, and look at the driver's log (dmesg)",
                    what, cudaGetErrorString(status));
  std::abort();
}

}  // namespace

void launch(Stream& stream, const Work& kernel) {
  if (stream.accelerator() != nullptr) return stream.accelerator()->launch(kernel);
  must(submit(kernel, nullptr), "a kernel did not start");
  must(cudaDeviceSynchronize(), "a kernel failed");
}

std::size_t shared_bytes(Stream& stream) {
  if (stream.accelerator() != nullptr)
    return static_cast<const GpuAccelerator*>(stream.accelerator())->shared_bytes();
  return shared_bytes_of(0);
}

bool has_wgmma(Stream& stream) {
  if (stream.accelerator() != nullptr)
    return static_cast<const GpuAccelerator*>(stream.accelerator())->has_wgmma();
  return has_wgmma_of(0);
}

}  // namespace cuda

bool pin_for_gpu(std::byte* from, std::size_t bytes) {
  int same_address = 0;
  return cudaDeviceGetAttribute(&same_address, cudaDevAttrCanUseHostPointerForRegisteredMem, 0) ==
             cudaSuccess &&
         same_address != 0 &&
         cudaHostRegister(from, bytes, cudaHostRegisterPortable | cudaHostRegisterMapped) ==
             cudaSuccess;
}

const Backend* cuda_backend() {
  int devices = 0;
  if (cudaGetDeviceCount(&devices) != cudaSuccess || devices == 0) return nullptr;
  static const Backend kBackend = [] {
    Backend b = cuda::backend(false, "cuda");
    b.memory = cuda::managed_memory;
    b.reaches_host = cuda::reaches_host();
    b.accelerator = cuda::GpuAccelerator::open;
    return b;
  }();
  return &kBackend;
}

}  // namespace troupe::kernels
