#pragma once

#include <atomic>
#include <cstddef>
#include <optional>

#include "actors/gateway/api_error.h"
#include "actors/gateway/api_request.h"
#include "runtime/limits.h"

namespace troupe {

/// The memory of answers that are not streamed: of each, and of all together. Tokens with their
/// log-probabilities are reckoned before a request is accepted, with all that it may ask for; texts
/// as they come, since the Router's journal bounds them; JSON while it is being sent. Thread-safe.
class AnswerRoom {
 public:
  struct Limits {
    std::size_t one_bytes_max = limits::kHttpAnswerBytesMax;
    std::size_t all_bytes_max = limits::kHttpAnswersBytesMax;
  };
  explicit AnswerRoom(Limits limits) : limits_(limits) {}

  /// Takes what the answer may need, into `taken`; or says why not: 400 for what can never be, 429
  /// for what cannot be now.
  std::optional<ApiError> take(const ApiRequest& request, std::size_t max_model_len,
                               std::size_t& taken);
  /// Takes `bytes`; 429 if there is no room for them.
  std::optional<ApiError> take(std::size_t bytes);
  /// An answer's text grew: newcomers feel it.
  void add(std::size_t bytes) { bytes_ += bytes; }
  void give_back(std::size_t bytes) { bytes_ -= bytes; }
  std::size_t bytes() const { return bytes_; }
  bool full() const { return bytes_ > limits_.all_bytes_max; }
  std::size_t one_bytes_max() const { return limits_.one_bytes_max; }

 private:
  const Limits limits_;
  std::atomic<std::size_t> bytes_{0};
};

/// A part of a room, given back with its end.
class RoomShare {
 public:
  explicit RoomShare(AnswerRoom& room) : room_(room) {}
  ~RoomShare() { room_.give_back(bytes_); }
  RoomShare(const RoomShare&) = delete;
  RoomShare& operator=(const RoomShare&) = delete;

  /// As the room's.
  std::optional<ApiError> take(std::size_t bytes) {
    auto error = room_.take(bytes);
    if (!error) bytes_ += bytes;
    return error;
  }
  void add(std::size_t bytes) {
    room_.add(bytes);
    bytes_ += bytes;
  }

 private:
  AnswerRoom& room_;
  std::size_t bytes_ = 0;
};

}  // namespace troupe
