#include "kernels/cuda/gpu_errors.h"

#include "runtime/byte_size.h"

namespace troupe::kernels::cuda {
namespace {

std::string text_of(cudaError_t status) { return cudaGetErrorString(status); }

constexpr const char* kAfter = "; restart the worker, and look at the driver's log (dmesg)";

}  // namespace

std::string gpu_name(int index) { return "GPU " + std::to_string(index); }

Error unusable(int index, cudaError_t status) {
  switch (status) {
    case cudaErrorInsufficientDriver:
    case cudaErrorUnsupportedPtxVersion:
      return unavailable("the NVIDIA driver is older than the CUDA runtime of this program (" +
                         std::to_string(CUDART_VERSION / 1000) + "." +
                         std::to_string(CUDART_VERSION % 1000 / 10) +
                         "), or there is none; install a newer driver, or compute on the "
                         "processors with --device cpu");
    case cudaErrorNoDevice:
      return unavailable(
          "there is no NVIDIA GPU here that this process may use; look at "
          "nvidia-smi and CUDA_VISIBLE_DEVICES, or compute on the processors with --device cpu");
    case cudaErrorDevicesUnavailable:
    case cudaErrorDeviceAlreadyInUse:
      return unavailable(gpu_name(index) +
                         " is in exclusive mode and another process has it, or it is "
                         "closed to all (nvidia-smi -c DEFAULT opens it)");
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorInvalidDeviceFunction:
      return unavailable("this program has no code for the architecture of " + gpu_name(index) +
                         "; build it with TROUPE_CUDA_ARCHITECTURES naming it, which must be "
                         "sm_80 or later");
    case cudaErrorMemoryAllocation:
      return resource_exhausted(gpu_name(index) +
                                " has no memory left, not even for a beginning; end "
                                "the processes that nvidia-smi shows");
    default:
      return unavailable(gpu_name(index) + " cannot be used: " + text_of(status));
  }
}

Error no_room(int index, std::uint64_t left, std::uint64_t all, std::uint64_t asked) {
  return resource_exhausted(gpu_name(index) + " has " + format_byte_size(left) + " of its " +
                            format_byte_size(all) + " left, and " + format_byte_size(asked) +
                            " are asked for; lower --device-memory, or end the processes that "
                            "nvidia-smi shows");
}

std::string failure(const char* what, cudaError_t status) {
  switch (status) {
    case cudaErrorECCUncorrectable:
      return std::string("an error in its memory could not be corrected (ECC)") + kAfter;
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorMisalignedAddress:
      return "a kernel failed: " + text_of(status) + kAfter;
    case cudaErrorDevicesUnavailable:
    case cudaErrorNoDevice:
      return std::string("it does not answer any more, as if it had fallen off the bus") + kAfter;
    default:
      return std::string(what) + ": " + text_of(status) + kAfter;
  }
}

}  // namespace troupe::kernels::cuda
