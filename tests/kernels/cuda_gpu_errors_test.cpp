// The sentences about a GPU that cannot be used, or fails: from the codes of CUDA alone.
#include "kernels/cuda/gpu_errors.h"

#include <doctest/doctest.h>

#include <vector>

namespace troupe::kernels::cuda {
namespace {

struct Told {
  cudaError_t status;
  std::vector<const char*> words;
};

TEST_CASE("a GPU that cannot be opened: why, and what to do") {
  const std::vector<Told> all = {
      {cudaErrorInsufficientDriver, {"driver is older than the CUDA runtime", "install a newer"}},
      {cudaErrorUnsupportedPtxVersion, {"driver is older than the CUDA runtime"}},
      {cudaErrorNoDevice, {"no NVIDIA GPU here", "CUDA_VISIBLE_DEVICES"}},
      {cudaErrorDevicesUnavailable, {"GPU 3 is in exclusive mode", "nvidia-smi -c DEFAULT"}},
      {cudaErrorDeviceAlreadyInUse, {"GPU 3 is in exclusive mode"}},
      {cudaErrorNoKernelImageForDevice,
       {"no code for the architecture of GPU 3", "TROUPE_CUDA_ARCHITECTURES", "sm_80"}},
      {cudaErrorMemoryAllocation, {"GPU 3 has no memory left", "nvidia-smi"}},
      {cudaErrorSystemDriverMismatch, {"GPU 3 cannot be used: "}},
  };
  for (const Told& told : all) {
    const Error error = unusable(3, told.status);
    for (const char* words : told.words) {
      INFO(error.message);
      CHECK(error.message.find(words) != std::string::npos);
    }
    CHECK(error.code == (told.status == cudaErrorMemoryAllocation ? ErrorCode::kResourceExhausted
                                                                  : ErrorCode::kUnavailable));
  }
}

TEST_CASE("a GPU that others have filled: how much is left of it") {
  const Error error =
      no_room(1, std::uint64_t{2} << 30, std::uint64_t{80} << 30, std::uint64_t{72} << 30);
  CHECK(error.code == ErrorCode::kResourceExhausted);
  CHECK(error.message ==
        "GPU 1 has 2.0 GiB of its 80.0 GiB left, and 72.0 GiB are asked for; lower "
        "--device-memory, or end the processes that nvidia-smi shows");
}

TEST_CASE("a GPU that fails while it computes: what by") {
  const std::vector<Told> all = {
      {cudaErrorECCUncorrectable, {"could not be corrected (ECC)", "dmesg"}},
      {cudaErrorIllegalAddress, {"a kernel failed: ", "restart the worker"}},
      {cudaErrorLaunchFailure, {"a kernel failed: "}},
      {cudaErrorDevicesUnavailable, {"fallen off the bus"}},
      {cudaErrorNoDevice, {"fallen off the bus"}},
      {cudaErrorUnknown, {"a copy failed: "}},
  };
  for (const Told& told : all)
    for (const char* words : told.words) {
      const std::string text = failure("a copy failed", told.status);
      INFO(text);
      CHECK(text.find(words) != std::string::npos);
    }
}

}  // namespace
}  // namespace troupe::kernels::cuda
