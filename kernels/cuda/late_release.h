#pragma once

#include <cstddef>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::kernels {

/// Gives memory back once no work is queued that might touch it. Thread-safe.
class LateRelease {
 public:
  explicit LateRelease(std::function<void(std::byte*)> give_back)
      : give_back_(std::move(give_back)) {}

  void release(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    if (queued_)
      waiting_.push_back(memory);
    else
      give_back_(memory);
  }
  void note_queued() {
    const std::lock_guard lock(mutex_);
    queued_ = true;
  }
  void note_all_ran() {
    const std::lock_guard lock(mutex_);
    queued_ = false;
    for (std::byte* memory : waiting_) give_back_(memory);
    waiting_.clear();
  }

 private:
  const std::function<void(std::byte*)> give_back_;
  std::mutex mutex_;
  bool queued_ = false;              // guarded by mutex_
  std::vector<std::byte*> waiting_;  // guarded by mutex_
};

}  // namespace troupe::kernels
