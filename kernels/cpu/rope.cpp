#include "kernels/rope.h"

#include <cassert>

#include "kernels/cpu/parallel.h"

namespace troupe::kernels {
namespace {

void turn(const float* cos, const float* sin, std::size_t half, RopePairs pairs, float* x) {
  const bool interleaved = pairs == RopePairs::kInterleaved;
  for (std::size_t i = 0; i < half; ++i) {
    float& first = x[interleaved ? 2 * i : i];
    float& second = x[interleaved ? 2 * i + 1 : i + half];
    const float a = first, b = second;
    first = a * cos[i] - b * sin[i];
    second = b * cos[i] + a * sin[i];
  }
}

}  // namespace

void rope(const Context& ctx, const RopeTable& table, RopePairs pairs,
          const std::int32_t* positions, Heads x) {
  assert(x.dim == 2 * table.half);
  const double work_ns = static_cast<double>(x.rows * x.heads * x.dim) / 2;
  parallel_ranges(ctx, x.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) {
      assert(positions[r] >= 0 && static_cast<std::size_t>(positions[r]) < table.positions);
      const std::size_t at = static_cast<std::size_t>(positions[r]) * table.half;
      for (std::size_t h = 0; h < x.heads; ++h)
        turn(table.cos + at, table.sin + at, table.half, pairs, x.at(r, h));
    }
  });
}

}  // namespace troupe::kernels
