#include "kernels/accelerator.h"

#include <algorithm>
#include <cstring>
#include <utility>

namespace troupe::kernels {
namespace {

/// Large copies go in pieces of this size.
constexpr std::size_t kPieceBytes = 8u << 20;
static_assert(kPieceBytes < Accelerator::kStagingBytes);

}  // namespace

void Accelerator::fail(const std::string& why) {
  {
    const std::lock_guard lock(failed_mutex_);
    if (failed_.empty()) failed_ = why;
  }
  throw AcceleratorFailed(why);
}

void Accelerator::check() const {
  const std::lock_guard lock(failed_mutex_);
  if (!failed_.empty()) throw AcceleratorFailed(failed_);
}

std::byte* Accelerator::stage(std::size_t bytes) {
  if (std::exchange(passed_, false)) {
    staging_.reset();
    staged_bytes_ = 0;
  }
  staged_bytes_ += bytes;
  return staging_.take<std::byte>(bytes);
}

void Accelerator::wait() {
  wait_queue();
  ++waits_;
  passed_ = true;
}

void Accelerator::bound_staging() {
  if (staged_bytes_ > kStagingBytes) wait();
}

void Accelerator::write(void* to, const void* from, std::size_t bytes) {
  for (std::size_t done = 0; done < bytes;) {
    bound_staging();
    const std::size_t piece = std::min(kPieceBytes, bytes - done);
    std::byte* const staged = stage(piece);
    std::memcpy(staged, static_cast<const std::byte*>(from) + done, piece);
    copy_in(static_cast<std::byte*>(to) + done, staged, piece);
    done += piece;
  }
}

const std::byte* Accelerator::read(const void* from, std::size_t bytes) {
  if (bytes == 0) return nullptr;
  bound_staging();
  std::byte* const staged = stage(bytes);
  copy_out(staged, from, bytes);
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
