#pragma once

#include <chrono>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "actors/base/mailbox.h"
#include "tests/patience.h"

namespace troupe::testing {

/// A mailbox whose mail the test takes out itself. Thread-safe.
class MailQueue final : public Mailbox {
 public:
  void end() override {}

  /// The oldest mail; none if none comes in time.
  std::optional<Mail> next(std::chrono::milliseconds patience = kTestPatience) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, patience, [&] { return !mail_.empty(); })) return std::nullopt;
    Mail mail = std::move(mail_.front());
    mail_.pop_front();
    taken();
    return mail;
  }

  /// All that came so far.
  std::vector<Mail> take() {
    std::vector<Mail> all;
    while (auto mail = next(std::chrono::milliseconds(0))) all.push_back(std::move(*mail));
    return all;
  }
  bool empty() {
    std::lock_guard lock(mutex_);
    return mail_.empty();
  }

  /// Whether who brings mail waits at the door.
  void hold(bool shut) {
    std::lock_guard lock(mutex_);
    shut_ = shut;
    changed_.notify_all();
  }
  /// Waits until someone waits at the door; false if nobody comes in time.
  bool held(std::chrono::milliseconds patience = kTestPatience) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, patience, [&] { return waiting_ > 0; });
  }

 private:
  void enqueue(Mail mail) override {
    std::unique_lock lock(mutex_);
    ++waiting_;
    changed_.notify_all();
    changed_.wait(lock, [&] { return !shut_; });
    --waiting_;
    mail_.push_back(std::move(mail));
    changed_.notify_all();
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Mail> mail_;  // guarded by mutex_
  bool shut_ = false;      // guarded by mutex_
  int waiting_ = 0;        // guarded by mutex_
};

}  // namespace troupe::testing
