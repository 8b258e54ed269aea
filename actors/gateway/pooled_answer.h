#pragma once

#include <cstddef>
#include <vector>

#include "actors/gateway/api_request.h"
#include "actors/gateway/json_writer.h"

namespace troupe {

/// The hidden states of a request's inputs, as items of the list that its answer holds.
class PooledAnswer {
 public:
  /// As that request has it: one hidden state an input, or one a token.
  explicit PooledAnswer(const ApiRequest& request);

  /// `hidden`: of all its `tokens`, or of one. What does not divide into them is no one's.
  void add(std::size_t input, std::size_t tokens, std::vector<float> hidden);
  /// Writes the next items, of those inputs that have theirs, and lets them go; true with the last
  /// one, false if there are `bytes_max` before.
  bool write(JsonWriter& json, std::size_t bytes_max);

 private:
  struct Item {
    std::vector<float> hidden;  // [rows, width]
    std::size_t rows = 1;
  };

  void begin_item(JsonWriter& json);
  void normalize(Item& item) const;

  const ApiRequest::Pooled form_;
  const bool each_token_;
  std::vector<Item> items_;
  std::size_t next_ = 0;  // The item that is written next,
  std::size_t row_ = 0;   // and its row.
};

}  // namespace troupe
