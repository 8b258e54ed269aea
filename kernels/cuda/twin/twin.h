#pragma once

#include <string>
#include <vector>

#include "kernels/cuda/twin/machine.h"
#include "kernels/stream.h"

namespace troupe::kernels::cuda_twin {

/// A seed says in its uppermost bits in which order an mma adds.
inline constexpr int kMmaOrderShift = 56;
constexpr std::uint64_t with_mma_order(std::uint64_t seed, MmaOrder order) {
  return seed | std::uint64_t{static_cast<std::uint8_t>(order)} << kMmaOrderShift;
}
constexpr MmaOrder mma_order_of(std::uint64_t seed) {
  return static_cast<MmaOrder>((seed >> kMmaOrderShift) % kMmaOrders);
}

/// The twin's GPU: a machine for each thread of a pool, which share the CTAs of a launch.
class Twin {
 public:
  /// `pool` may be null.
  Twin(ThreadPool* pool, std::uint64_t seed);

  /// Runs all CTAs, in an order that the seed chooses. Says what was found wrong; empty: nothing.
  std::string run(const Program& program, Grid grid);

 private:
  ThreadPool* pool_;
  SplitMix random_;
  std::vector<Machine> machines_;
  std::vector<std::int64_t> order_;
};

template <class Kernel>
Program program_of(const Kernel& kernel) {
  static_assert(Kernel::kThreads <= kThreadsMax && Kernel::kSharedBytes <= kWideSharedBytesMax);
  Program p;
  p.thread = [](const void* k, Cta& cta) { (*static_cast<const Kernel*>(k))(cta); };
  p.kernel = &kernel;
  p.threads = Kernel::kThreads;
  p.shared_bytes = Kernel::kSharedBytes;
  p.meets = Kernel::kMeets;
  return p;
}

/// The twin of a stream's device. What a launch finds wrong ends the process: it is a kernel's
/// fault, and what it computed means nothing.
void run_or_stop(Stream& stream, const Program& program, Grid grid);

template <class Kernel>
void launch(Stream& stream, Grid grid, const Kernel& kernel) {
  run_or_stop(stream, program_of(kernel), grid);
}

}  // namespace troupe::kernels::cuda_twin
