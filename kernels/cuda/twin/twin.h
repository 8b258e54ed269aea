#pragma once

#include <span>
#include <string>
#include <type_traits>
#include <utility>
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
  /// From now on CTAs run one by one, and what they do to each other there is found (watch.h).
  void watch(std::byte* memory, std::size_t bytes) { watched_ = {memory, bytes}; }
  /// Counts what warps move (traffic.h); without a pool.
  void count(Traffic* traffic);

 private:
  std::string run_watched(const Program& program, Grid grid);

  ThreadPool* pool_;
  SplitMix random_;
  std::vector<Machine> machines_;
  std::vector<std::int64_t> order_;
  std::span<std::byte> watched_;
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

/// What is found wrong ends the process: it is a program's fault, and what it computed means
/// nothing.
void stop_if_wrong(const std::string& finding);

/// A program as work for a queue, and back. What it runs is whose it was.
Work work_of(const Program& program, std::size_t kernel_bytes, Grid grid);
Program program_of(const Work& work);

/// By the twin of a stream's device, now; or into the queue of the device.
void launch(Stream& stream, const Work& kernel);

template <class Kernel>
void launch(Stream& stream, Grid grid, Kernel kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel> && alignof(Kernel) <= 16);
  __builtin_clear_padding(&kernel);  // a graph compares bytes
  launch(stream, work_of(program_of(kernel), sizeof kernel, grid));
}

}  // namespace troupe::kernels::cuda_twin
