#include "kernels/embedding.h"

#include <cassert>
#include <cstring>

#include "kernels/cpu/parallel.h"
#include "runtime/bf16.h"

namespace troupe::kernels {
namespace {

float widen(float x) { return x; }
float widen(Bf16 x) { return to_float(x); }

/// Tensors of a mapped file need not be aligned to their elements.
template <class T>
void copy_row(const WeightSource& table, std::int32_t id, float* y) {
  constexpr auto kSize = static_cast<std::int64_t>(sizeof(T));
  const auto* from = static_cast<const std::byte*>(table.data) + id * table.stride_n * kSize;
  for (std::int64_t i = 0; i < table.k; ++i) {
    T value;
    std::memcpy(&value, from + i * table.stride_k * kSize, sizeof value);
    y[i] = widen(value);
  }
}

}  // namespace

void embedding(const Context& ctx, const WeightSource& table, const std::int32_t* ids, Rows y) {
  assert(static_cast<std::int64_t>(y.cols) == table.k);
  const double work_ns = static_cast<double>(y.rows * y.cols) / 4;
  parallel_ranges(ctx, y.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) {
      assert(ids[r] >= 0 && ids[r] < table.n);
      if (table.type == WeightType::kBf16)
        copy_row<Bf16>(table, ids[r], y.row(r));
      else
        copy_row<float>(table, ids[r], y.row(r));
    }
  });
}

}  // namespace troupe::kernels
