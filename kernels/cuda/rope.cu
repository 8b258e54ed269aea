#include "kernels/rope.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A thread a pair. Bytes: 16 a pair; sine and cosine, which all heads of a row share, come from a
/// cache. Operations: four multiplications and two additions. Bound by memory, or by the launch.
struct Turn {
  RopeTable table;
  bool interleaved;
  const std::int32_t* positions;
  Tensor x;

  DEVICE void operator()(std::int64_t row, std::int64_t col) const {
    const std::int64_t head = col / table.half, i = col % table.half;
    const std::int64_t at = positions[row] * table.half + i;
    float* first = head_at<float>(x, row, head) + (interleaved ? 2 * i : i);
    float* second = first + (interleaved ? 1 : table.half);
    const float cos = table.cos[at], sin = table.sin[at], a = *first, b = *second;
    *first = a * cos - b * sin;
    *second = b * cos + a * sin;
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::rope(Stream& stream, const RopeTable& table, RopePairs pairs,
                             const std::int32_t* positions, const Tensor& x) {
  assert(x.dim >= 2 * table.half);
  Stream::Scope scope(stream);
  each_number(stream, x.rows, x.heads * table.half,
              Turn{table, pairs == RopePairs::kInterleaved, staged(stream, positions, x.rows), x});
}

}  // namespace troupe::kernels
