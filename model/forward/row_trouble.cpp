#include "model/forward/row_trouble.h"

#include <algorithm>

namespace troupe {

std::string no_number_text(const std::string& where) {
  return "The model gave no number for this request: " + where +
         " are infinite or not numbers (NaN). Other requests are not affected; if this one should "
         "work, check the checkpoint's weights.";
}

void RowTrouble::begin(kernels::Stream& stream, std::size_t rows) {
  layer_.assign(rows, kernels::kNeverBad);
  const std::size_t bytes = rows * sizeof(std::int32_t);
  stream.write(room_.at_least(stream, bytes), layer_.data(), bytes);
}

bool RowTrouble::any(std::size_t first, std::size_t count) const {
  const auto begin = layer_.begin() + static_cast<std::ptrdiff_t>(first);
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(count),
                     [](std::int32_t layer) { return layer != kernels::kNeverBad; });
}

std::string RowTrouble::text(std::size_t first, std::size_t count) const {
  const auto begin = layer_.begin() + static_cast<std::ptrdiff_t>(first);
  const std::int32_t layer = *std::min_element(begin, begin + static_cast<std::ptrdiff_t>(count));
  return no_number_text(layer < 0 ? "the embeddings of its tokens"
                                  : "its activations after layer " + std::to_string(layer));
}

}  // namespace troupe
