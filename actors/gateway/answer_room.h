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
/// as they come, since the Router's journal bounds them. Thread-safe.
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
  /// An answer's text grew: newcomers feel it.
  void add(std::size_t bytes) { bytes_ += bytes; }
  void give_back(std::size_t bytes) { bytes_ -= bytes; }
  std::size_t bytes() const { return bytes_; }
  bool full() const { return bytes_ > limits_.all_bytes_max; }

 private:
  const Limits limits_;
  std::atomic<std::size_t> bytes_{0};
};

}  // namespace troupe
