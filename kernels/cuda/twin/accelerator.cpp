#include "kernels/cuda/twin/accelerator.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <new>
#include <utility>

#include "kernels/cuda/late_release.h"
#include "kernels/cuda/twin/guarded_memory.h"
#include "runtime/buffer.h"
#include "runtime/clock.h"
#include "runtime/log.h"
#include "runtime/xxh3.h"

namespace troupe::kernels::cuda_twin {
namespace {

/// One of so many calls runs some of what is queued.
constexpr std::uint64_t kSeldom = 64;
/// What is slow takes so many times as long.
constexpr int kSlowTimes = 10;

std::shared_ptr<std::byte> pinned(std::size_t bytes) {
  auto buffer = std::make_shared<Buffer>(Buffer::uninitialized(bytes));
  std::byte* const data = buffer->data();
  return {std::move(buffer), data};
}

std::string words_for(InjectedFailure::What what) {
  using What = InjectedFailure::What;
  if (what == What::kHang)
    return "it has not ended within " + std::to_string(Accelerator::kWaitMax.count()) +
           " s what it was given";
  if (what == What::kLaunch) return "a kernel failed: it touched memory that is not its own";
  if (what == What::kEcc) return "an error in its memory could not be corrected (ECC)";
  return "it does not answer any more, as if it had fallen off the bus";
}

}  // namespace

/// Outlives the device, as long as somebody holds some of it.
struct TwinAccelerator::Memory {
  Memory(std::size_t bytes, std::shared_ptr<MemoryNews> n) : guarded(bytes), news(std::move(n)) {}

  GuardedMemory guarded;
  const std::shared_ptr<MemoryNews> news;
  LateRelease late{[this](std::byte* run) {
    guarded.give_back(run);
    news->note();
  }};
};

TwinAccelerator::TwinAccelerator(const AcceleratorOptions& options, InjectedFailure injected)
    : Accelerator(pinned, options.staging_bytes),
      memory_(std::make_shared<Memory>(options.memory_bytes, memory_news())),
      twin_(options.pool, options.seed),
      random_(options.seed + 1),
      injected_(injected) {}

TwinAccelerator::~TwinAccelerator() { memory_->late.note_all_ran(); }

std::shared_ptr<std::byte> TwinAccelerator::memory(std::size_t bytes) {
  const std::uint64_t before = taken_.fetch_add(1);
  if (injected_.what == InjectedFailure::What::kMemory && before >= injected_.after &&
      before < injected_.after + 2)
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

void TwinAccelerator::download(std::span<std::byte> to, const std::byte* from) {
  check();
  if (to.empty()) return;
  const GuardedMemory::Open open(memory_->guarded);
  std::memcpy(to.data(), from, to.size());
}

// --- The queue ----------------------------------------------------------------------------------

bool TwinAccelerator::strikes(InjectedFailure::What what) const {
  return injected_.what == what && calls_ > injected_.after;
}

void TwinAccelerator::fail_by(InjectedFailure::What what) {
  memory_->late.note_all_ran();
  given_.clear();
  fail(words_for(what));
}

void TwinAccelerator::joins(const Work& work) {
  ++calls_;
  if (strikes(InjectedFailure::What::kLost)) fail_by(InjectedFailure::What::kLost);
  memory_->late.note_queued();
  if (work.kind == Work::Kind::kCopyIn) staged_.emplace(work.from, xxh3_64(work.from, work.bytes));
  if (work.kind == Work::Kind::kCopyOut) std::memset(work.to, 0xff, work.bytes);
}

TwinAccelerator::Given::Given(const Work& w) : work(w) {
  if (w.kind != Work::Kind::kKernel) return;
  auto copy = std::make_shared<Buffer>(Buffer::uninitialized(w.bytes));
  std::memcpy(copy->data(), w.from, w.bytes);
  work.from = copy->data();
  arguments = std::move(copy);
}

class TwinAccelerator::Graph final : public GraphQueue::Graph {
 public:
  Graph(TwinAccelerator& device, std::span<const Work> batch)
      : device_(device), nodes_(batch.begin(), batch.end()) {}

  void change(std::size_t at, const Work& work) override {
    if (!same_place(nodes_.at(at).work, work))
      stop_if_wrong("a node of a graph was given another kernel, or a copy another way");
    nodes_[at] = Given(work);
  }
  void launch() override {
    for (const Given& node : nodes_) device_.give(node);
  }

 private:
  TwinAccelerator& device_;
  std::vector<Given> nodes_;
};

/// What was filled after it was sent is what the device never saw.
void TwinAccelerator::forgets(std::span<const std::byte> told) {
  const auto first = copied_.lower_bound(told.data());
  const auto end = copied_.lower_bound(told.data() + told.size());
  for (auto copy = first; copy != end; ++copy)
    if (xxh3_64(copy->first, copy->second.bytes) != copy->second.digest)
      stop_if_wrong("the host changed what it had told the device after that was sent");
  copied_.erase(first, end);
}

void TwinAccelerator::run(const Work& work) { give(Given(work)); }

std::unique_ptr<GraphQueue::Graph> TwinAccelerator::capture(std::span<const Work> batch) {
  return std::make_unique<Graph>(*this, batch);
}

void TwinAccelerator::give(const Given& given) {
  given_.push_back(given);
  if (strikes(InjectedFailure::What::kHang)) return;
  if (random_.next() % kSeldom == 0) do_first(random_.next() % (given_.size() + 1));
}

void TwinAccelerator::wait_given() {
  for (const auto what : {InjectedFailure::What::kLaunch, InjectedFailure::What::kEcc})
    if (strikes(what)) fail_by(what);
  if (strikes(InjectedFailure::What::kHang)) {
    if (!fails_within(kWaitMax)) fail_by(InjectedFailure::What::kHang);
    check();
  }
  do_first(given_.size());
  memory_->late.note_all_ran();
}

/// At once, the earliest moment that is legal: what the other has not computed by now is poison.
void TwinAccelerator::give_copy(std::byte* to, Accelerator& of, const std::byte* from,
                                std::size_t bytes) {
  auto* const other = dynamic_cast<TwinAccelerator*>(&of);
  if (other == nullptr) return Accelerator::give_copy(to, of, from, bytes);
  ++calls_;
  if (strikes(InjectedFailure::What::kHang)) return;
  do_first(given_.size());
  Buffer here = Buffer::uninitialized(bytes);
  {
    const GuardedMemory::Open open(other->memory_->guarded);
    std::memcpy(here.data(), from, bytes);
  }
  const GuardedMemory::Open open(memory_->guarded);
  std::memcpy(to, here.data(), bytes);
  ++progress_;
}

std::chrono::nanoseconds TwinAccelerator::timed(const std::function<void()>& work) {
  wait();
  const auto before = worked_;
  work();
  wait();
  return worked_ - before;
}

/// In small pieces, each of which is progress: what is slow does not hang.
void TwinAccelerator::dawdle(std::chrono::nanoseconds time) {
  constexpr std::chrono::nanoseconds kPiece = std::chrono::milliseconds(50);
  for (; time > time.zero(); time -= kPiece) {
    if (fails_within(std::min(time, kPiece))) check();
    ++progress_;
  }
}

void TwinAccelerator::do_first(std::size_t count) {
  if (count == 0) return;
  const GuardedMemory::Open open(memory_->guarded);
  for (; count > 0; --count) {
    const TimePoint start = now();
    do_now(given_.front().work);
    given_.pop_front();
    if (strikes(InjectedFailure::What::kSlow)) dawdle((kSlowTimes - 1) * (now() - start));
    worked_ += now() - start;
    ++progress_;
  }
}

void TwinAccelerator::do_now(const Work& work) {
  if (work.kind == Work::Kind::kKernel)
    return stop_if_wrong(twin_.run(program_of(work), work.grid));
  if (work.kind == Work::Kind::kCopyIn) {
    const std::uint64_t digest = staged_.extract(work.from).mapped();
    if (xxh3_64(work.from, work.bytes) != digest)
      stop_if_wrong("the host changed what a copy to the device had still to read");
    copied_[static_cast<const std::byte*>(work.from)] = {work.bytes, digest};
  }
  std::memcpy(work.to, work.from, work.bytes);
}

}  // namespace troupe::kernels::cuda_twin
