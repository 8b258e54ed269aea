#include <cstring>

#include "kernels/cuda/twin/backend.h"
#include "tests/bench/gpu_clock.h"
#include "tests/bench/timing.h"

namespace troupe::timing {

const kernels::Backend* bench_backend() { return kernels::cuda_twin_backend(); }
std::string bench_device() { return "the twin of a GPU, on the host"; }
std::size_t bench_cache_bytes() { return 1 << 10; }

std::uint64_t bench_memory_bytes(bool) { return 64u << 20; }

double device_seconds(kernels::Accelerator& device, const std::function<void()>& body) {
  const double start = seconds();
  body();
  device.wait();
  return seconds() - start;
}

Ceiling copy_ceiling(std::size_t bytes) {
  const Buffer from(bytes);
  Buffer to(bytes);
  const double time = best_time(0.01, [&] { std::memcpy(to.data(), from.data(), from.size()); });
  return {2 * static_cast<double>(bytes) / time, {}};
}

Ceiling matmul_ceiling(int) { return {0, "a twin has no library of products"}; }

}  // namespace troupe::timing
