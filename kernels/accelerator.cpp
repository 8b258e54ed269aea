#include "kernels/accelerator.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <iterator>
#include <new>
#include <utility>

namespace troupe::kernels {
namespace {

/// Large copies go in pieces of this size.
constexpr std::size_t kPieceBytes = 8u << 20;
/// What is told has so much room at first, and grows by as much.
constexpr std::size_t kTellingBytes = 1u << 20;
static_assert(kPieceBytes < Accelerator::kStagingBytes);

}  // namespace

void Accelerator::fail(const std::string& why) {
  give_up(why);
  throw AcceleratorFailed(why);
}

void Accelerator::give_up(const std::string& why) {
  {
    const std::lock_guard lock(failed_mutex_);
    if (failed_.empty()) failed_ = why;
  }
  failed_changed_.notify_all();
}

bool Accelerator::fails_within(std::chrono::nanoseconds most) const {
  std::unique_lock lock(failed_mutex_);
  return failed_changed_.wait_for(lock, most, [&] { return !failed_.empty(); });
}

bool Accelerator::has_failed() const {
  const std::lock_guard lock(failed_mutex_);
  return !failed_.empty();
}

void Accelerator::check() const {
  const std::lock_guard lock(failed_mutex_);
  if (!failed_.empty()) throw AcceleratorFailed(failed_);
}

std::shared_ptr<std::byte> Accelerator::memory(std::size_t bytes,
                                               std::chrono::milliseconds patience,
                                               const std::function<bool()>& goes_on) {
  constexpr std::chrono::milliseconds kLook(50);
  while (true) {
    const std::uint64_t before = memory_news_->times();
    try {
      return memory(bytes);
    } catch (const std::bad_alloc&) {
      if (patience <= std::chrono::milliseconds::zero() || !goes_on()) throw;
    }
    check();
    if (!memory_news_->wait(before, kLook)) patience -= kLook;
  }
}

/// By way of the host.
void Accelerator::upload_from(std::byte* to, Accelerator& of, const std::byte* from,
                              std::size_t bytes) {
  Buffer piece = Buffer::uninitialized(std::min(bytes, kPieceBytes));
  for (std::size_t done = 0; done < bytes;) {
    const auto some = piece.span().first(std::min(piece.size(), bytes - done));
    of.download(some, from + done);
    upload(to + done, some);
    done += some.size();
  }
}

std::byte* Accelerator::stage(std::size_t bytes) {
  if (std::exchange(passed_, false)) {
    staging_.reset();
    staged_bytes_ = 0;
  }
  staged_bytes_ += bytes;
  return staging_.take<std::byte>(bytes);
}

void Accelerator::put(const Work& work) {
  check();
  joins(work);
  queue_.add(work);
  if (queue_.full()) flush();
}

void Accelerator::send(void* to, const std::byte* staged, std::size_t bytes) {
  if (bytes > 0) put({.kind = Work::Kind::kCopyIn, .from = staged, .to = to, .bytes = bytes});
}

Accelerator::Told Accelerator::tell(std::size_t bytes) {
  // What grows a little from step to step leaves the places of the others as they are.
  const std::size_t step = std::max(kAlignment, std::bit_floor(bytes) / 4);
  const std::size_t room = (bytes + step - 1) / step * step;
  auto at =
      std::ranges::find_if(telling_, [&](const Telling& t) { return t.bytes - t.used >= room; });
  if (at == telling_.end()) {
    const std::size_t size = std::max(room, kTellingBytes);
    telling_.push_back({pinned_(size), memory(size), size});
    at = std::prev(telling_.end());
  }
  told_passed_ = false;
  const Told told = {at->here.get() + at->used, at->there.get() + at->used};
  at->used += room;
  told_bytes_ += room;
  return told;
}

void Accelerator::flush(bool singly) {
  check();
  attach();
  for (Telling& t : telling_) {
    if (t.sent == t.used) continue;
    const Work copy = {.kind = Work::Kind::kCopyIn,
                       .from = t.here.get() + t.sent,
                       .to = t.there.get() + t.sent,
                       .bytes = t.used - t.sent};
    t.sent = t.used;
    joins(copy);
    queue_.add_first(copy);
  }
  queue_.flush(*this, singly);
  note_given();
}

void Accelerator::wait() {
  flush();
  wait_given();
  held_.clear();
  ++waits_;
  passed_ = told_passed_ = true;
}

void Accelerator::begin_op() {
  if (!told_passed_ && told_bytes_ > std::min(kToldBytes, staging_bytes_)) wait();
  if (!std::exchange(told_passed_, false)) return;
  for (Telling& t : telling_) {
    forgets({t.here.get(), t.sent});
    t.used = t.sent = 0;
  }
  told_bytes_ = 0;
}

void Accelerator::bound_staging() {
  if (!passed_ && staged_bytes_ > staging_bytes_) wait();
}

void Accelerator::write(void* to, const void* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    bound_staging();
    const std::size_t piece = std::min(kPieceBytes, bytes - done);
    std::byte* const staged = stage(piece);
    std::memcpy(staged, static_cast<const std::byte*>(from) + done, piece);
    send(static_cast<std::byte*>(to) + done, staged, piece);
    done += piece;
  }
}

void Accelerator::write(void* to, const Payload& from) {
  assert(from.memory == MemoryKind::kPinned);
  if (held_.empty() || held_.back() != from.owner) held_.push_back(from.owner);
  if (from.bytes.empty()) return;
  flush();
  const Work copy = {.kind = Work::Kind::kCopyIn,
                     .from = from.bytes.data(),
                     .to = to,
                     .bytes = from.bytes.size()};
  joins(copy);
  run(copy);
  note_given();
}

/// By itself, and not as one of a batch: what is exchanged among devices begins one.
void Accelerator::copy(void* to, const Payload& from) {
  Accelerator& of = *from.device;
  if (&of != this && of.has_failed())
    throw OtherFailed("the device that it comes from has failed");
  held_.push_back(from.owner);
  if (from.bytes.empty()) return;
  flush();
  give_copy(static_cast<std::byte*>(to), of, from.there, from.bytes.size());
}

/// By way of the host.
void Accelerator::give_copy(std::byte* to, Accelerator& of, const std::byte* from,
                            std::size_t bytes) {
  Buffer here = Buffer::uninitialized(bytes);
  of.download(here.span(), from);
  write(to, here.data(), bytes);
}

void Accelerator::fetch(std::shared_ptr<Buffer> to, const void* from, std::size_t bytes) {
  assert(to->memory() == MemoryKind::kPinned && bytes <= to->size());
  if (bytes == 0) return;
  std::byte* const here = to->data();
  held_.push_back(std::move(to));
  put({.kind = Work::Kind::kCopyOut, .from = from, .to = here, .bytes = bytes});
  bytes_read_ += bytes;
}

const std::byte* Accelerator::read(const void* from, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  bound_staging();
  std::byte* const staged = stage(bytes);
  put({.kind = Work::Kind::kCopyOut, .from = from, .to = staged, .bytes = bytes});
  bytes_read_ += bytes;
  wait();
  return staged;
}

void Accelerator::read(void* to, const void* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    const std::size_t piece = std::min(kPieceBytes, bytes - done);
    std::memcpy(static_cast<std::byte*>(to) + done,
                read(static_cast<const std::byte*>(from) + done, piece), piece);
    done += piece;
  }
}

}  // namespace troupe::kernels
