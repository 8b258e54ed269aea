#pragma once

#include "kernels/cuda/math.h"
#include "kernels/tensor.h"

/// Ops whose every number stands alone: a thread each, consecutive threads on consecutive numbers.
/// They move each number once and are bound by memory.
namespace troupe::kernels::TROUPE_CUDA_SPACE {

template <class Body>
struct Each {
  static constexpr int kThreads = 256;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  std::int64_t cols;
  Body body;

  DEVICE void operator()(Cta& cta) const {
    const std::int64_t col = cta.block_y() * kThreads + cta.thread();
    if (col < cols) body(cta.block_x(), col);
  }
};

/// body(row, column) for all.
template <class Body>
void each_number(Stream& stream, std::int64_t rows, std::int64_t cols, const Body& body) {
  launch(stream, {rows, ceil_div(cols, Each<Body>::kThreads)}, Each<Body>{cols, body});
}

/// A head of a row.
template <class T>
DEVICE T* head_at(const Tensor& x, std::int64_t row, std::int64_t head = 0) {
  return static_cast<T*>(x.data) + row * x.row_stride + head * x.head_stride;
}

/// The i-th number of float32 or bf16.
DEVICE float load_number(const void* from, DType dtype, std::int64_t i) {
  if (dtype == DType::kF32) return static_cast<const float*>(from)[i];
  return to_float(Bf16{static_cast<const std::uint16_t*>(from)[i]});
}

/// As float32, bf16 or e4m3, nearest even.
DEVICE void store_number(float x, DType dtype, void* to, std::int64_t i) {
  if (dtype == DType::kF32) static_cast<float*>(to)[i] = x;
  if (dtype == DType::kBf16) static_cast<std::uint16_t*>(to)[i] = to_bf16(x).bits;
  if (dtype == DType::kF8E4M3) static_cast<std::uint8_t*>(to)[i] = to_e4m3(x);
}

}  // namespace troupe::kernels::TROUPE_CUDA_SPACE
