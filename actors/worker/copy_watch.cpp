#include "actors/worker/copy_watch.h"

#include <time.h>

#include <algorithm>
#include <string>
#include <utility>

#include "model/held_tensor.h"
#include "runtime/limits.h"
#include "runtime/thread_nice.h"

namespace troupe {
namespace {

/// The least of all: it gets what is left, and on a full machine still more than its share.
constexpr int kNice = 19;
/// How soon pieces that are held no more stop to count.
constexpr Duration kLook = std::chrono::seconds(1);

double processor_seconds() {
  timespec t{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

std::uint32_t seconds(Duration d) {
  return static_cast<std::uint32_t>(std::chrono::ceil<std::chrono::seconds>(d).count());
}

}  // namespace

CopyWatch::CopyWatch(Listener listener)
    : listener_(std::move(listener)), thread_([this] { loop(); }) {}

CopyWatch::~CopyWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void CopyWatch::add(const PieceTensors& piece) {
  const TimePoint time = now();
  std::lock_guard lock(mutex_);
  if (copies_.empty()) changed_.notify_all();
  for (std::size_t i = 0; i < piece->size(); ++i) copies_.push_back({piece, i, time});
  note();
}

void CopyWatch::prove_all() {
  std::lock_guard lock(mutex_);
  all_before_ = now();
  changed_.notify_all();
}

/// What report() may say without a lock: an agent's turn must not wait for a thread that has no
/// priority.
void CopyWatch::note() {
  parts_ = static_cast<std::uint32_t>(copies_.size());
  if (!copies_.empty()) oldest_ = copies_.front().proven;
}

ProofReport CopyWatch::report() const {
  const std::uint32_t parts = parts_;
  const TimePoint oldest = oldest_;
  return {parts, parts, parts > 0 ? seconds(now() - oldest) : 0, seconds(round_)};
}

// --- The thread ---------------------------------------------------------------------------------

bool CopyWatch::due(TimePoint time) const {
  return all_before_ || (!copies_.empty() && time >= copies_.front().proven + limits::kProofPause);
}

void CopyWatch::loop() {
  set_thread_nice(kNice);
  std::unique_lock lock(mutex_);
  while (!stop_) {
    std::erase_if(copies_, [](const Copy& copy) { return copy.piece.expired(); });
    note();
    const TimePoint looked = now();
    while (!stop_ && due(now()) && now() < looked + kLook) look(lock);
    if (stop_) return;
    if (copies_.empty() && !all_before_)
      changed_.wait(lock);
    else if (!due(now()))
      changed_.wait_for(lock, kLook);
  }
}

/// At the one that has waited longest; or all have been looked at.
void CopyWatch::look(std::unique_lock<std::mutex>& lock) {
  if (all_before_ && (copies_.empty() || copies_.front().proven >= *all_before_)) {
    all_before_.reset();
    lock.unlock();
    listener_.proven();
    lock.lock();
    return;
  }
  Copy copy = std::move(copies_.front());
  copies_.pop_front();
  // Whoever lets go of it last frees it: here, if that is this thread.
  PieceTensors piece = copy.piece.lock();
  if (!piece) return;
  const bool good = holds(lock, piece, copy.tensor);
  if (stop_) return;
  if (good) {
    const TimePoint time = now();
    if (std::exchange(copy.looked_at, true)) round_ = time - copy.proven;
    copy.proven = time;
    copies_.push_back(std::move(copy));
    note();
  }
  lock.unlock();
  if (!good) tell(copy, piece);
  piece.reset();
  lock.lock();
}

/// With pauses, unless all are wanted at once. True too if it is to stop, or nobody else has the
/// piece any more: its memory is wanted.
bool CopyWatch::holds(std::unique_lock<std::mutex>& lock, const PieceTensors& piece,
                      std::size_t tensor) {
  lock.unlock();
  const auto as_packed = is_as_packed((*piece)[tensor], [&] {
    lock.lock();
    if (!all_before_) pause(lock);
    const bool goes_on = !stop_ && piece.use_count() > 1;
    lock.unlock();
    return goes_on;
  });
  lock.lock();
  return as_packed.value_or(true);
}

bool CopyWatch::let_go(const PieceTensors& piece, const std::atomic<bool>& cancelled) {
  const auto take = [&]() -> std::optional<Copy> {
    std::lock_guard lock(mutex_);
    const auto found =
        std::ranges::find_if(copies_, [&](const Copy& copy) { return copy.of(piece); });
    if (found == copies_.end()) return {};
    const Copy copy = *found;
    copies_.erase(found);
    return copy;
  };
  while (const auto copy = take()) {
    const auto as_packed = is_as_packed((*piece)[copy->tensor], [&] { return !cancelled; });
    if (!as_packed && cancelled) {
      std::lock_guard lock(mutex_);
      copies_.insert(std::ranges::upper_bound(copies_, copy->proven, {}, &Copy::proven), *copy);
      return false;
    }
    if (as_packed == false) tell(*copy, piece);
  }
  return true;
}

/// So long that what was used since the last pause is kProofShare of the time.
void CopyWatch::pause(std::unique_lock<std::mutex>& lock) {
  const double used = processor_seconds();
  const std::chrono::duration<double> rest((used - used_s_) / limits::kProofShare);
  used_s_ = used;
  changed_.wait_for(lock, rest, [this] { return stop_ || all_before_.has_value(); });
}

/// The piece goes as a whole: its other tensors are not looked at any more.
void CopyWatch::tell(const Copy& copy, const PieceTensors& piece) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(copies_, [&](const Copy& other) { return other.of(piece); });
  }
  const HeldTensor& held = (*piece)[copy.tensor];
  const TensorProof& proof = held.proof;
  std::size_t bytes = 0;
  for (const auto& part : held.memory) bytes += part.size();
  const std::uint32_t age = seconds(now() - copy.proven);
  listener_.differs(
      {piece,
       {proof.tensor,
        "the " + std::to_string(bytes) + " bytes of it in the memory of " + listener_.place(held) +
            " are not what was packed from " + proof.file + ", as they still were " +
            std::to_string(age) + " s ago; that memory or a program may be at fault.",
        age}});
}

}  // namespace troupe
