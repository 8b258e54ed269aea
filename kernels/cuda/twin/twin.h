#pragma once

#include <atomic>
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

/// Another bit says that it has no more shared memory than every GPU has.
inline constexpr std::uint64_t kSmallGpu = std::uint64_t{1} << 55;
/// And another that it has as much as sm_80 and sm_100; else it is an sm_90, with its instructions.
inline constexpr std::uint64_t kOtherGpu = std::uint64_t{1} << 54;

/// The twin's GPU: a multiprocessor for each thread of a pool, which share the CTAs of a launch. On
/// each some are resident at a time, one, two or as many as a GPU has room for, as the seed has it;
/// they go on in turns. Those that wait for one that is not resident would wait for ever.
class Twin {
 public:
  /// `pool` may be null.
  Twin(ThreadPool* pool, std::uint64_t seed);

  /// Runs all CTAs, in an order that the seed chooses. Says what was found wrong; empty: nothing.
  std::string run(const Program& program, Grid grid);
  /// What a launch does: runs, and ends the process if something is wrong, or says it where a test
  /// wants to know, and then runs nothing more.
  void launch(const Program& program, Grid grid);
  void tell(std::string* finding) { told_ = finding; }
  /// From now on that many CTAs are resident; 0: as the seed has it.
  void keep_resident(int ctas) { resident_ = ctas; }
  /// Counts up while a kernel goes on, for other threads to see: with each CTA's turn that was more
  /// than waiting for other CTAs.
  std::uint64_t progress() const { return progress_; }
  /// What a CTA may ask for of shared memory.
  std::size_t shared_bytes() const { return shared_bytes_; }
  /// From now on CTAs run one by one, and what they do to each other there is found (watch.h).
  void watch(std::byte* memory, std::size_t bytes) { watched_ = {memory, bytes}; }
  /// Counts what warps move (traffic.h); without a pool.
  void count(Traffic* traffic);

 private:
  struct Launch {
    const Program& program;
    Grid grid;
    int resident;
    std::atomic<std::size_t> next = 0;  ///< of the order
    std::atomic<int> moving = 1;        ///< multiprocessors whose CTAs do more than wait for others
  };
  /// A place for each CTA that can be resident.
  struct Multiprocessor {
    SplitMix random;
    MmaOrder mma_order;
    std::vector<Machine> machines = {};
    Machine& place(int i);
  };

  void share(Launch& launch, Multiprocessor& on);
  int choose_resident(const Program& program);
  std::string run_watched(const Program& program, Grid grid);

  ThreadPool* pool_;
  SplitMix random_;
  std::vector<Multiprocessor> multiprocessors_;
  std::vector<std::int64_t> order_;
  std::span<std::byte> watched_;
  std::string* told_ = nullptr;
  int resident_ = 0;
  std::atomic<std::uint64_t> progress_ = 0;
  const std::size_t shared_bytes_;
};

template <class Kernel>
Program program_of(const Kernel& kernel) {
  static_assert(Kernel::kThreads <= kThreadsMax && Kernel::kSharedBytes <= kMostSharedBytes);
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

/// What a CTA of the stream's device may ask for.
std::size_t shared_bytes(Stream& stream);

/// Whether it has the instructions of wgmma.h.
bool has_wgmma(Stream& stream);

template <class Kernel>
void launch(Stream& stream, Grid grid, Kernel kernel) {
  static_assert(std::is_trivially_copyable_v<Kernel> && alignof(Kernel) <= 16);
  __builtin_clear_padding(&kernel);  // a graph compares bytes
  launch(stream, work_of(program_of(kernel), sizeof kernel, grid));
}

}  // namespace troupe::kernels::cuda_twin
