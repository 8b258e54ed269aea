// Times by events of the device's queue.
#include "tests/bench/gpu_clock.h"

#include <cuda_runtime_api.h>
#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <stdexcept>
#include <vector>

#include "kernels/cuda/gpu_accelerator.h"

namespace troupe::timing {
namespace {

/// A GPU writes so much in some 300 us or more, in which the host has what is measured queued; and
/// it is more than any cache holds.
constexpr std::size_t kCoverBytes = 1u << 30;

void must(cudaError_t status) {
  if (status != cudaSuccess) throw std::runtime_error(cudaGetErrorString(status));
}

class Events {
 public:
  Events() {
    must(cudaEventCreate(&begin_));
    must(cudaEventCreate(&end_));
  }
  ~Events() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  double seconds(cudaStream_t queue, const std::function<void()>& body) const {
    must(cudaEventRecord(begin_, queue));
    body();
    must(cudaEventRecord(end_, queue));
    must(cudaEventSynchronize(end_));
    float milliseconds = 0;
    must(cudaEventElapsedTime(&milliseconds, begin_, end_));
    return milliseconds * 1e-3;
  }

 private:
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
};

/// Device memory that goes with its scope.
class Room {
 public:
  explicit Room(std::size_t bytes) { must(cudaMalloc(&data_, bytes)); }
  ~Room() { cudaFree(data_); }
  Room(const Room&) = delete;
  Room& operator=(const Room&) = delete;
  std::byte* data() const { return static_cast<std::byte*>(data_); }

 private:
  void* data_ = nullptr;
};

double median_seconds(int count, const std::function<void()>& body) {
  const Events events;
  std::vector<double> times;
  for (int i = 0; i < count + 3; ++i) times.push_back(events.seconds(nullptr, body));
  times.erase(times.begin(), times.begin() + 3);
  std::ranges::sort(times);
  return times[times.size() / 2];
}

}  // namespace

const kernels::Backend* bench_backend() { return kernels::cuda_backend(); }

std::string bench_device() {
  cudaDeviceProp p;
  must(cudaGetDeviceProperties(&p, 0));
  return std::string(p.name) + ", sm_" + std::to_string(p.major) + std::to_string(p.minor) + ", " +
         std::to_string(p.multiProcessorCount) + " multiprocessors, " +
         std::to_string(p.l2CacheSize >> 20) + " MiB of cache";
}

std::size_t bench_cache_bytes() {
  cudaDeviceProp p;
  must(cudaGetDeviceProperties(&p, 0));
  return static_cast<std::size_t>(p.l2CacheSize);
}

std::uint64_t bench_memory_bytes(bool small) { return small ? 1u << 30 : 10ull << 30; }

/// The first event would be passed at once on an idle queue, and the time be the host's, which puts
/// the work together and launches it. So the GPU is busy before it; and nothing that the body reads
/// is in the cache then.
double device_seconds(kernels::Accelerator& device, const std::function<void()>& body) {
  static const Events events;
  static const Room cover(kCoverBytes);
  const cudaStream_t queue = static_cast<kernels::cuda::GpuAccelerator&>(device).queue();
  must(cudaMemsetAsync(cover.data(), 0, kCoverBytes, queue));
  const double time = events.seconds(queue, [&] {
    body();
    device.flush();
  });
  device.wait();  // what it staged may be used again
  return time;
}

Ceiling copy_ceiling(std::size_t bytes) {
  const Room from(bytes), to(bytes);
  must(cudaMemset(from.data(), 0x3c, bytes));
  const double time = median_seconds(20, [&] {
    must(cudaMemcpyAsync(to.data(), from.data(), bytes, cudaMemcpyDeviceToDevice, nullptr));
  });
  return {2 * static_cast<double>(bytes) / time, {}};
}

Ceiling matmul_ceiling(int size) {
  // cuBLAS is asked for when it is there; its interface is declared here, since it need not be.
  void* library = nullptr;
  for (const char* name : {"libcublas.so.13", "libcublas.so.12", "libcublas.so"})
    if (library == nullptr) library = dlopen(name, RTLD_NOW);
  if (library == nullptr) return {0, "there is no libcublas.so on this machine"};
  using Create = int(void**);
  using Product = int(void*, int, int, int, int, int, const void*, const void*, int, int,
                      const void*, int, int, const void*, void*, int, int, int, int);
  const auto create = reinterpret_cast<Create*>(dlsym(library, "cublasCreate_v2"));
  const auto product = reinterpret_cast<Product*>(dlsym(library, "cublasGemmEx"));
  void* handle = nullptr;
  if (create == nullptr || product == nullptr || create(&handle) != 0)
    return {0, "cuBLAS did not start"};
  const std::size_t bytes = static_cast<std::size_t>(size) * static_cast<std::size_t>(size) * 2;
  const Room a(bytes), b(bytes), c(bytes);
  std::vector<std::uint16_t> numbers(bytes / 2);  // zeros would be multiplied faster
  std::uint32_t bits = 1;
  for (std::uint16_t& x : numbers)
    x = static_cast<std::uint16_t>(0x3c00u + ((bits = bits * 1664525u + 1013904223u) >> 23));
  must(cudaMemcpy(a.data(), numbers.data(), bytes, cudaMemcpyHostToDevice));
  must(cudaMemcpy(b.data(), numbers.data(), bytes, cudaMemcpyHostToDevice));
  constexpr int kBf16 = 14, kCompute32 = 68, kDefault = -1;  // library_types.h, cublas_api.h
  const float one = 1, zero = 0;
  int status = 0;
  const double time = median_seconds(10, [&] {
    status |= product(handle, 0, 0, size, size, size, &one, a.data(), kBf16, size, b.data(), kBf16,
                      size, &zero, c.data(), kBf16, size, kCompute32, kDefault);
  });
  if (status != 0) return {0, "cuBLAS refused a product of bf16"};
  return {2.0 * size * size * size / time, {}};
}

}  // namespace troupe::timing
