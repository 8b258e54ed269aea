#pragma once

#include <atomic>
#include <deque>
#include <functional>
#include <memory>

#include "kernels/backend.h"
#include "kernels/cuda/twin/twin.h"

namespace troupe::kernels::cuda_twin {

/// A GPU as the host sees it, made to find what only a GPU would break:
///
/// - its memory cannot be touched by the host (GuardedMemory);
/// - kernels and copies run late: each at a moment that the seed chooses, at the latest when they
///   are waited for. What a copy is still to read must stay as it is; what it is to write is poison
///   until then;
/// - it fails when it is told to (InjectedFailure).
class TwinAccelerator final : public Accelerator {
 public:
  /// Throws std::bad_alloc.
  explicit TwinAccelerator(const AcceleratorOptions& options);
  ~TwinAccelerator() override;

  std::shared_ptr<std::byte> memory(std::size_t bytes) override;
  void upload(std::byte* to, std::span<const std::byte> from) override;
  std::uint64_t progress() const override { return progress_; }

  /// `program.kernel` is what `kernel` keeps.
  void launch(const Program& program, std::shared_ptr<const void> kernel, Grid grid);

 protected:
  void copy_in(void* to, const std::byte* staged, std::size_t bytes) override;
  void copy_out(std::byte* staged, const void* from, std::size_t bytes) override;
  void wait_queue() override;

 private:
  struct Memory;
  void put(std::function<void()> work);
  void run(std::size_t count);
  [[noreturn]] void fail_by(InjectedFailure::What what);
  bool strikes(InjectedFailure::What what) const;

  const std::shared_ptr<Memory> memory_;
  Twin twin_;
  SplitMix random_;
  const InjectedFailure injected_;
  std::deque<std::function<void()>> queue_;
  std::uint64_t calls_ = 0;
  std::atomic<std::uint64_t> taken_{0}, progress_{0};
};

}  // namespace troupe::kernels::cuda_twin
