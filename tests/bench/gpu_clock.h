#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "kernels/backend.h"

/// The device that `gpu_bench` measures: a GPU, by its events, or its twin, whose times mean
/// nothing and show that every line of the benchmark runs.
namespace troupe::timing {

/// Null: there is none here.
const kernels::Backend* bench_backend();
/// Memory that the device is asked for: what the largest row needs.
std::uint64_t bench_memory_bytes(bool small);
/// "NVIDIA H100 80GB HBM3, sm_90, 132 multiprocessors, 50 MiB of cache".
std::string bench_device();
std::size_t bench_cache_bytes();

/// Seconds that the device works on what `body` puts into its queue, from its first to its last
/// moment.
double device_seconds(kernels::Accelerator& device, const std::function<void()>& body);

/// A ceiling, or why there is none.
struct Ceiling {
  double value = 0;
  std::string missing;
};
/// Bytes a second of a copy within the device's memory: read and written.
Ceiling copy_ceiling(std::size_t bytes);
/// Operations a second of a square product of bf16 by the vendor's library.
Ceiling matmul_ceiling(int size);

}  // namespace troupe::timing
