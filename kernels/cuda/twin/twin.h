#pragma once

#include <span>
#include <string>
#include <vector>

#include "kernels/cuda/twin/machine.h"
#include "kernels/stream.h"

namespace troupe::kernels::cuda_twin {

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
  static_assert(Kernel::kThreads <= kThreadsMax && Kernel::kSharedBytes <= kSharedBytesMax);
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
/// How many there were so far, of all streams.
std::uint64_t launches();

template <class Kernel>
void launch(Stream& stream, Grid grid, const Kernel& kernel) {
  run_or_stop(stream, program_of(kernel), grid);
}

}  // namespace troupe::kernels::cuda_twin
