#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/tensor.h"
#include "runtime/thread_pool.h"

namespace troupe {

/// Where the rows of a step lost their numbers. An infinity or a NaN stays in its row through every
/// kernel, and in its sequence through attention, so such a row is marked and computed on.
class RowTrouble {
 public:
  /// All rows are fine.
  void begin(std::size_t rows) { layer_.assign(rows, kNone); }
  /// Marks the rows of `hidden` that hold something else than finite numbers after `layer`; what
  /// was marked before stays as it is.
  void look(ThreadPool& pool, const kernels::Tensor& hidden, std::int32_t layer);
  /// Whether one of those rows is marked.
  bool any(std::size_t first, std::size_t count) const;
  /// What to tell the client whose rows they are; one of them must be marked.
  std::string text(std::size_t first, std::size_t count) const;

 private:
  static constexpr std::int32_t kNone = INT32_MAX;
  std::vector<std::int32_t> layer_;  // [rows] the first after which it was bad
};

/// Whether no number is an infinity or a NaN.
bool all_finite(const float* x, std::size_t count);

/// The sentence for a request that the model has no number for; `where` names the place.
std::string no_number_text(const std::string& where);

}  // namespace troupe
