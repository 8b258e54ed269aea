#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <string>

#include "runtime/result.h"

/// What CUDA says of a GPU, in words for people: what it is, and what to do.
namespace troupe::kernels::cuda {

std::string gpu_name(int index);  ///< "GPU 0"
/// Why a GPU cannot be opened.
Error unusable(int index, cudaError_t status);
/// It has not as much memory left as it is asked for.
Error no_room(int index, std::uint64_t left, std::uint64_t all, std::uint64_t asked);
/// What a GPU fails by while it computes; `what` it was about, where CUDA's words alone say less.
std::string failure(const char* what, cudaError_t status);

}  // namespace troupe::kernels::cuda
