#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "kernels/bad_rows.h"
#include "kernels/stream.h"
#include "kernels/tensor.h"

namespace troupe {

/// Where the rows of a step lost their numbers. An infinity or a NaN stays in its row through every
/// kernel, and in its sequence through attention, so such a row is marked and computed on.
class RowTrouble {
 public:
  /// All rows are fine.
  void begin(kernels::Stream& stream, std::size_t rows);
  /// Marks the rows of `hidden` that hold something else than finite numbers after `layer`; what
  /// was marked before stays as it is.
  void look(kernels::Stream& stream, const kernels::Tensor& hidden, std::int32_t layer) {
    kernels::bad_rows(stream, hidden, layer, marks());
  }
  /// What was marked, for the calls below.
  void read(kernels::Stream& stream) {
    stream.read(layer_.data(), marks(), layer_.size() * sizeof(std::int32_t));
  }
  /// Whether one of those rows is marked.
  bool any(std::size_t first, std::size_t count) const;
  /// What to tell the client whose rows they are; one of them must be marked.
  std::string text(std::size_t first, std::size_t count) const;

 private:
  std::int32_t* marks() const { return reinterpret_cast<std::int32_t*>(room_.data()); }

  kernels::Stream::Room room_;       // [rows], where ops mark
  std::vector<std::int32_t> layer_;  // [rows] the first after which it was bad
};

/// The sentence for a request that the model has no number for; `where` names the place.
std::string no_number_text(const std::string& where);

}  // namespace troupe
