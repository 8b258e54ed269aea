#include "kernels/cuda/twin/accelerator.h"

#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/cuda/late_release.h"
#include "kernels/cuda/twin/guarded_memory.h"
#include "runtime/buffer.h"
#include "runtime/log.h"
#include "runtime/xxh3.h"

namespace troupe::kernels::cuda_twin {
namespace {

/// One of so many calls runs some of what is queued.
constexpr std::uint64_t kSeldom = 64;

std::shared_ptr<std::byte> pinned(std::size_t bytes) {
  auto buffer = std::make_shared<Buffer>(Buffer::uninitialized(bytes));
  std::byte* const data = buffer->data();
  return {std::move(buffer), data};
}

const char* words_for(InjectedFailure::What what) {
  using What = InjectedFailure::What;
  if (what == What::kLaunch) return "a kernel failed: it touched memory that is not its own";
  if (what == What::kEcc) return "an error in its memory could not be corrected (ECC)";
  return "it does not answer any more, as if it had fallen off the bus";
}

}  // namespace

/// Outlives the device, as long as somebody holds some of it.
struct TwinAccelerator::Memory {
  explicit Memory(std::size_t bytes) : guarded(bytes) {}

  GuardedMemory guarded;
  LateRelease late{[this](std::byte* run) { guarded.give_back(run); }};
};

TwinAccelerator::TwinAccelerator(const AcceleratorOptions& options)
    : Accelerator(pinned),
      memory_(std::make_shared<Memory>(options.memory_bytes)),
      twin_(options.pool, options.seed),
      random_(options.seed + 1),
      injected_(options.injected) {}

TwinAccelerator::~TwinAccelerator() { memory_->late.note_all_ran(); }

std::shared_ptr<std::byte> TwinAccelerator::memory(std::size_t bytes) {
  const std::uint64_t before = taken_.fetch_add(1);
  if (injected_.what == InjectedFailure::What::kMemory && before == injected_.after)
    std::__throw_bad_alloc();
  std::byte* const run = memory_->guarded.take(bytes);
  return {run, [memory = memory_](std::byte* p) { memory->late.release(p); }};
}

void TwinAccelerator::upload(std::byte* to, std::span<const std::byte> from) {
  check();
  if (from.empty()) return;
  const GuardedMemory::Open open(memory_->guarded);
  std::memcpy(to, from.data(), from.size());
}

// --- The queue ----------------------------------------------------------------------------------

bool TwinAccelerator::strikes(InjectedFailure::What what) const {
  return injected_.what == what && calls_ > injected_.after;
}

void TwinAccelerator::fail_by(InjectedFailure::What what) {
  memory_->late.note_all_ran();
  queue_.clear();
  fail(words_for(what));
}

void TwinAccelerator::put(std::function<void()> work) {
  check();
  ++calls_;
  if (strikes(InjectedFailure::What::kLost)) fail_by(InjectedFailure::What::kLost);
  queue_.push_back(std::move(work));
  memory_->late.note_queued();
  if (random_.next() % kSeldom == 0) run(random_.next() % (queue_.size() + 1));
}

void TwinAccelerator::run(std::size_t count) {
  if (count == 0) return;
  const GuardedMemory::Open open(memory_->guarded);
  for (; count > 0; --count) {
    queue_.front()();
    queue_.pop_front();
    memory_->late.note_ran(1);
    ++progress_;
  }
}

void TwinAccelerator::wait_queue() {
  check();
  for (const auto what : {InjectedFailure::What::kLaunch, InjectedFailure::What::kEcc})
    if (strikes(what)) fail_by(what);
  run(queue_.size());
}

void TwinAccelerator::launch(const Program& program, std::shared_ptr<const void> kernel,
                             Grid grid) {
  put([this, program, kernel = std::move(kernel), grid] {
    Program there = program;
    there.kernel = kernel.get();
    stop_if_wrong(twin_.run(there, grid));
  });
  bound_staging();
}

void TwinAccelerator::copy_in(void* to, const std::byte* staged, std::size_t bytes) {
  if (bytes == 0) return;
  put([=, digest = xxh3_64(staged, bytes)] {
    if (xxh3_64(staged, bytes) != digest)
      stop_if_wrong("the host changed what a copy to the device had still to read");
    std::memcpy(to, staged, bytes);
  });
}

void TwinAccelerator::copy_out(std::byte* staged, const void* from, std::size_t bytes) {
  if (bytes == 0) return;
  std::memset(staged, 0xff, bytes);
  put([=] { std::memcpy(staged, from, bytes); });
}

}  // namespace troupe::kernels::cuda_twin
