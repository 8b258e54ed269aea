#include "model/forward/row_trouble.h"

#include <algorithm>
#include <bit>

namespace troupe {
namespace {

/// Numbers to look at from which on several threads do it.
constexpr std::size_t kParallelAbove = 1 << 16;

}  // namespace

bool all_finite(const float* x, std::size_t count) {
  constexpr std::uint32_t kExponent = 0x7f800000;
  std::uint32_t bad = 0;
  for (std::size_t i = 0; i < count; ++i)
    bad |= (std::bit_cast<std::uint32_t>(x[i]) & kExponent) == kExponent ? 1u : 0u;
  return bad == 0;
}

std::string no_number_text(const std::string& where) {
  return "The model gave no number for this request: " + where +
         " are infinite or not numbers (NaN). Other requests are not affected; if this one should "
         "work, check the checkpoint's weights.";
}

void RowTrouble::look(ThreadPool& pool, const kernels::Tensor& hidden, std::int32_t layer) {
  const auto width = static_cast<std::size_t>(hidden.dim);
  const auto rows = static_cast<std::size_t>(hidden.rows);
  const auto check = [&](int, std::size_t row) {
    const auto* x =
        static_cast<const float*>(hidden.data) + static_cast<std::int64_t>(row) * hidden.row_stride;
    if (layer_[row] == kNone && !all_finite(x, width)) layer_[row] = layer;
  };
  if (rows * width >= kParallelAbove) return pool.parallel_for(rows, check);
  for (std::size_t row = 0; row < rows; ++row) check(0, row);
}

bool RowTrouble::any(std::size_t first, std::size_t count) const {
  const auto begin = layer_.begin() + static_cast<std::ptrdiff_t>(first);
  return std::any_of(begin, begin + static_cast<std::ptrdiff_t>(count),
                     [](std::int32_t layer) { return layer != kNone; });
}

std::string RowTrouble::text(std::size_t first, std::size_t count) const {
  const auto begin = layer_.begin() + static_cast<std::ptrdiff_t>(first);
  const std::int32_t layer = *std::min_element(begin, begin + static_cast<std::ptrdiff_t>(count));
  return no_number_text(layer < 0 ? "the embeddings of its tokens"
                                  : "its activations after layer " + std::to_string(layer));
}

}  // namespace troupe
