#pragma once

#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <span>

#include "kernels/backend.h"
#include "kernels/cuda/twin/injected_failure.h"
#include "kernels/cuda/twin/twin.h"

namespace troupe::kernels::cuda_twin {

/// A GPU as the host sees it, made to find what only a GPU would break:
///
/// - its memory cannot be touched by the host (GuardedMemory);
/// - kernels and copies run late: each at a moment that the seed chooses, at the latest when they
///   are waited for; in a graph as it was captured and changed. What a copy is still to read must
///   stay as it is; what it is to write is poison until then;
/// - it fails, is slow, or hangs when it is told to (InjectedFailure).
class TwinAccelerator final : public Accelerator {
 public:
  /// Throws std::bad_alloc.
  explicit TwinAccelerator(const AcceleratorOptions& options, InjectedFailure injected = {});
  ~TwinAccelerator() override;

  std::shared_ptr<std::byte> memory(std::size_t bytes) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  void download(std::span<std::byte> to, const std::byte* from) override;
  std::uint64_t progress() const override { return progress_ + twin_.progress(); }
  std::chrono::nanoseconds timed(const std::function<void()>& work) override;
  std::size_t shared_bytes() const { return twin_.shared_bytes(); }

 protected:
  void joins(const Work& work) override;
  void forgets(std::span<const std::byte> told) override;
  void wait_given() override;
  void give_copy(std::byte* to, Accelerator& of, const std::byte* from, std::size_t bytes) override;
  void run(const Work& work) override;
  std::unique_ptr<GraphQueue::Graph> capture(std::span<const Work> batch) override;

 private:
  struct Memory;
  class Graph;
  /// Work with its arguments, which stay until it has run.
  struct Given {
    explicit Given(const Work& w);
    Work work;
    std::shared_ptr<const void> arguments;
  };
  void give(const Given& given);
  void do_first(std::size_t count);
  void do_now(const Work& work);
  void dawdle(std::chrono::nanoseconds time);
  [[noreturn]] void fail_by(InjectedFailure::What what);
  bool strikes(InjectedFailure::What what) const;

  const std::shared_ptr<Memory> memory_;
  Twin twin_;
  SplitMix random_;
  const InjectedFailure injected_;
  std::deque<Given> given_;
  struct Copied {
    std::size_t bytes;
    std::uint64_t digest;
  };
  std::multimap<const void*, std::uint64_t> staged_;  ///< what copies are to read, digested
  std::map<const std::byte*, Copied> copied_;    ///< and what they read last from there
  std::uint64_t calls_ = 0;
  std::chrono::nanoseconds worked_{};  ///< its own clock: what all work has taken
  std::atomic<std::uint64_t> taken_{0}, progress_{0};
};

}  // namespace troupe::kernels::cuda_twin
