#pragma once

#include <algorithm>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <string>

#include "tests/transport/nccl/double.h"
#include "transport/nccl/abi.h"

/// What libnccl's double does wrong, when.
namespace troupe::nccl {

/// Calls of a communicator come from one thread, which it is known by.
inline thread_local int own_rank = -1;

class Mischief {
 public:
  struct Call {
    int number = 0, code = kInternalError;
  };

  Mischief() {
    if (const char* const text = std::getenv("TROUPE_NCCL_DOUBLE")) set(text);
  }

  void set(const std::string& text) {
    std::lock_guard lock(mutex_);
    fail_.clear();
    hang_.clear();
    numbers_.clear();
    calls_.clear();
    groups_.clear();
    all_groups_ = 0;
    released_ = false;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t end = std::min(text.find_first_of(";,", at), text.size());
      entry(text.substr(at, end - at));
      at = end + 1;
    }
  }

  void release() {
    std::lock_guard lock(mutex_);
    released_ = true;
    changed_.notify_all();
  }

  /// Counts a call. What it is to return at once, if anything.
  int on_call(const char* name) {
    std::unique_lock lock(mutex_);
    if (!is_meant(own_rank)) return kSuccess;
    const int call = ++calls_[name];
    if (const auto it = hang_.find(name); it != hang_.end() && it->second.number == call)
      changed_.wait(lock, [&] { return released_; });
    const auto it = fail_.find(name);
    return it != fail_.end() && it->second.number == call ? it->second.code : kSuccess;
  }

  /// Of that rank: the number of its groups so far, this one included; 0 if nothing is to happen.
  int on_group(int rank) {
    std::lock_guard lock(mutex_);
    ++all_groups_;
    return is_meant(rank) ? ++groups_[rank] : 0;
  }
  int groups() {
    std::lock_guard lock(mutex_);
    return all_groups_;
  }

  int number(const std::string& key, int otherwise = 0) {
    std::lock_guard lock(mutex_);
    const auto it = numbers_.find(key);
    return it == numbers_.end() ? otherwise : it->second;
  }

 private:
  bool is_meant(int rank) const {
    const auto it = numbers_.find("rank");
    return it == numbers_.end() || it->second == std::max(rank, 0);
  }

  void entry(const std::string& text) {
    const std::size_t equals = text.find('=');
    const std::string key = text.substr(0, equals), value = text.substr(equals + 1);
    if (key != "fail" && key != "hang") {
      numbers_[key] = std::stoi(value);
      return;
    }
    const std::size_t colon = value.find(':'), second = value.find(':', colon + 1);
    Call call{std::stoi(value.substr(colon + 1)), kInternalError};
    if (second != value.npos) call.code = std::stoi(value.substr(second + 1));
    (key == "fail" ? fail_ : hang_)[value.substr(0, colon)] = call;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, Call> fail_, hang_;
  std::map<std::string, int> numbers_, calls_;
  std::map<int, int> groups_;
  int all_groups_ = 0;
  bool released_ = false;
};

inline Mischief& mischief() {
  static Mischief once;
  return once;
}

}  // namespace troupe::nccl
