#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <mutex>
#include <utility>
#include <vector>

namespace troupe::kernels {

/// Gives memory back when the work that was queued before has run. Thread-safe.
class LateRelease {
 public:
  explicit LateRelease(std::function<void(std::byte*)> give_back)
      : give_back_(std::move(give_back)) {}

  void release(std::byte* memory) {
    const std::lock_guard lock(mutex_);
    if (ran_ == queued_)
      give_back_(memory);
    else
      waiting_.push_back({queued_, memory});
  }
  void note_queued() {
    const std::lock_guard lock(mutex_);
    ++queued_;
  }
  void note_ran(std::uint64_t count) {
    const std::lock_guard lock(mutex_);
    give_back_up_to(ran_ + count);
  }
  void note_all_ran() {
    const std::lock_guard lock(mutex_);
    give_back_up_to(queued_);
  }

 private:
  struct Waiting {
    std::uint64_t after = 0;
    std::byte* memory = nullptr;
  };
  void give_back_up_to(std::uint64_t ran) {
    ran_ = ran;
    std::erase_if(waiting_, [&](const Waiting& w) {
      if (w.after > ran) return false;
      give_back_(w.memory);
      return true;
    });
  }

  const std::function<void(std::byte*)> give_back_;
  std::mutex mutex_;
  std::uint64_t queued_ = 0, ran_ = 0;  // guarded by mutex_, as `waiting_`
  std::vector<Waiting> waiting_;
};

}  // namespace troupe::kernels
