#include "kernels/round_wire.h"

#include <cstring>

#include "kernels/cpu/parallel.h"
#include "runtime/bf16.h"

namespace troupe::kernels {
namespace {

template <class Body>
void each_row(const Context& ctx, std::size_t rows, std::size_t cols, const Body& body) {
  parallel_ranges(ctx, rows, static_cast<double>(rows * cols) / 3,
                  [&](int, std::size_t first, std::size_t last) {
                    for (std::size_t r = first; r < last; ++r) body(r);
                  });
}

}  // namespace

void to_wire(const Context& ctx, WireType type, ConstRows x, void* out) {
  each_row(ctx, x.rows, x.cols, [&](std::size_t r) {
    const float* from = x.row(r);
    if (type == WireType::kF32) {
      std::memcpy(static_cast<float*>(out) + r * x.cols, from, x.cols * sizeof(float));
      return;
    }
    Bf16* to = static_cast<Bf16*>(out) + r * x.cols;
    for (std::size_t i = 0; i < x.cols; ++i) to[i] = to_bf16(from[i]);
  });
}

void from_wire(const Context& ctx, WireType type, const void* in, Rows y) {
  each_row(ctx, y.rows, y.cols, [&](std::size_t r) {
    float* to = y.row(r);
    if (type == WireType::kF32) {
      std::memcpy(to, static_cast<const float*>(in) + r * y.cols, y.cols * sizeof(float));
      return;
    }
    const Bf16* from = static_cast<const Bf16*>(in) + r * y.cols;
    for (std::size_t i = 0; i < y.cols; ++i) to[i] = to_float(from[i]);
  });
}

void round_to_wire(const Context& ctx, WireType type, Rows x) {
  if (type == WireType::kF32) return;
  each_row(ctx, x.rows, x.cols, [&](std::size_t r) {
    float* at = x.row(r);
    for (std::size_t i = 0; i < x.cols; ++i) at[i] = to_float(to_bf16(at[i]));
  });
}

}  // namespace troupe::kernels
