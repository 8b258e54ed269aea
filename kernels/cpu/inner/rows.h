#pragma once

#include <cstring>

#include "kernels/cpu/gated_act.h"
#include "kernels/cpu/rows.h"
#include "kernels/scalar_math.h"
#include "runtime/bf16.h"

/// Loops that the compiler makes vector code of, with the instructions of the file that includes
/// this. `Sums` says how a norm adds.
namespace troupe::kernels {
namespace {

template <class Sums>
void norm_row(const float* x, const float* weight, std::int64_t n, float epsilon, float* y) {
  const float mean = Sums::squares(x, n) / static_cast<float>(n);
  const float scale = 1.0f / sqrt_f32(mean + epsilon);
  for (std::int64_t i = 0; i < n; ++i) y[i] = x[i] * scale * weight[i];
}

void act_row(GatedAct act, const float* gate, const float* up, std::int64_t n, float* y) {
  cpu::gated_act_row(act, gate, up, n, y);
}

void add_row(const float* x, std::int64_t n, float* y) {
  for (std::int64_t i = 0; i < n; ++i) y[i] += x[i];
}

void add_weighted_row(const void* x, DType dtype, float weight, std::int64_t n, float* y) {
  if (dtype == DType::kF32) {
    const auto* from = static_cast<const float*>(x);
    for (std::int64_t i = 0; i < n; ++i) y[i] += weight * from[i];
    return;
  }
  const auto* from = static_cast<const std::uint16_t*>(x);
  for (std::int64_t i = 0; i < n; ++i) y[i] += weight * to_float(Bf16{from[i]});
}

void turn_row(const float* cos, const float* sin, std::int64_t half, bool interleaved, float* x) {
  const std::int64_t step = interleaved ? 2 : 1, apart = interleaved ? 1 : half;
  for (std::int64_t i = 0; i < half; ++i) {
    const float a = x[step * i], b = x[step * i + apart];
    x[step * i] = a * cos[i] - b * sin[i];
    x[step * i + apart] = b * cos[i] + a * sin[i];
  }
}

void narrow_row(const float* x, std::int64_t n, DType dtype, void* y) {
  if (dtype == DType::kF32) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
  } else if (dtype == DType::kBf16) {
    auto* to = static_cast<std::uint16_t*>(y);
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_bf16(x[i]).bits;
  } else {
    auto* to = static_cast<std::uint8_t*>(y);
    for (std::int64_t i = 0; i < n; ++i) to[i] = to_e4m3(x[i]);
  }
}

void widen_row(const void* x, DType dtype, std::int64_t n, float* y) {
  if (dtype == DType::kF32) {
    std::memcpy(y, x, static_cast<std::size_t>(n) * sizeof(float));
    return;
  }
  const auto* from = static_cast<const std::uint16_t*>(x);
  for (std::int64_t i = 0; i < n; ++i) y[i] = to_float(Bf16{from[i]});
}

template <class Sums>
constexpr cpu::RowKernels row_kernels_with() {
  return {norm_row<Sums>, act_row,    add_row,  add_weighted_row,
          turn_row,       narrow_row, widen_row};
}

}  // namespace
}  // namespace troupe::kernels
