#include "kernels/cuda/twin/backend.h"

#include <cstring>
#include <new>

#include "kernels/cuda/ops.h"
#include "kernels/cuda/twin/accelerator.h"
#include "runtime/buffer.h"
#include "runtime/byte_size.h"

namespace troupe::kernels {
namespace {

/// Full of NaN, so that what nobody has written shows.
std::shared_ptr<std::byte> poisoned_memory(std::size_t bytes) {
  auto buffer = std::make_shared<Buffer>(Buffer::uninitialized(bytes));
  std::byte* const data = buffer->data();
  std::memset(data, 0xff, bytes);
  return {std::move(buffer), data};
}

std::shared_ptr<void> open_twin(const Stream::Options& options) {
  return std::make_shared<cuda_twin::Twin>(options.pool, options.order_seed);
}

Result<std::shared_ptr<Accelerator>> twin_accelerator(const AcceleratorOptions& options,
                                                      InjectedFailure injected) {
  try {
    return std::shared_ptr<Accelerator>(
        std::make_shared<cuda_twin::TwinAccelerator>(options, injected));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("there is no room for " + format_byte_size(options.memory_bytes) +
                              " of device memory; give it less with --device-memory");
  }
}

Backend with_twin(bool plain, std::string_view name, InjectedFailure injected = {}) {
  Backend b = cuda_twin::backend(plain, name);
  b.memory = poisoned_memory;
  b.open = open_twin;
  b.accelerator = [injected](const AcceleratorOptions& options) {
    return twin_accelerator(options, injected);
  };
  return b;
}

bool has_fma() { return supported_cpu_families().back() >= CpuFamily::kAvx2; }

}  // namespace

const Backend* cuda_twin_backend() {
  static const Backend kBackend = with_twin(false, "cuda_twin");
  return has_fma() ? &kBackend : nullptr;
}

const Backend* cuda_plain_twin_backend() {
  static const Backend kBackend = with_twin(true, "cuda_plain_twin");
  return has_fma() ? &kBackend : nullptr;
}

Backend failing_twin_backend(InjectedFailure injected) {
  return with_twin(false, "cuda_twin", injected);
}

}  // namespace troupe::kernels
