#include "kernels/combine.h"

#include <cassert>

#include "kernels/cpu/parallel.h"
#include "runtime/bf16.h"

namespace troupe::kernels {

void combine(const Context& ctx, WireType type, std::span<const ExpertOutput> outputs,
             std::size_t per_row, Rows y) {
  assert(outputs.size() == per_row * y.rows);
  const double work_ns = static_cast<double>(outputs.size() * y.cols) / 3;
  parallel_ranges(ctx, y.rows, work_ns, [&](int, std::size_t first, std::size_t last) {
    for (std::size_t r = first; r < last; ++r) {
      float* to = y.row(r);
      for (const ExpertOutput& out : outputs.subspan(r * per_row, per_row)) {
        if (type == WireType::kF32) {
          const auto* from = static_cast<const float*>(out.data);
          for (std::size_t i = 0; i < y.cols; ++i) to[i] += out.weight * from[i];
        } else {
          const auto* from = static_cast<const Bf16*>(out.data);
          for (std::size_t i = 0; i < y.cols; ++i) to[i] += out.weight * to_float(from[i]);
        }
      }
    }
  });
}

}  // namespace troupe::kernels
