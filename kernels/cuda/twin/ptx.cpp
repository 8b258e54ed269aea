#include "kernels/cuda/twin/ptx.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "runtime/bf16.h"

namespace troupe::kernels::cuda_twin::ptx {
namespace {

constexpr int kLanes = 32, kM = 16, kN = 8, kK = 16;

float half(std::uint32_t pair, int which) {
  return to_float(Bf16{static_cast<std::uint16_t>(pair >> (16 * which))});
}

MmaOperands operands_of(void* const* lanes) {
  MmaOperands of;
  for (int l = 0; l < kLanes; ++l) {
    const auto& lane = *static_cast<const MmaLane*>(lanes[l]);
    const int row = l / 4, k = l % 4 * 2;
    for (int e = 0; e < 2; ++e) {
      of.a[row][k + e] = static_cast<double>(half(lane.a[0], e));
      of.a[row + 8][k + e] = static_cast<double>(half(lane.a[1], e));
      of.a[row][k + 8 + e] = static_cast<double>(half(lane.a[2], e));
      of.a[row + 8][k + 8 + e] = static_cast<double>(half(lane.a[3], e));
      of.b[k + e][row] = static_cast<double>(half(lane.b[0], e));
      of.b[k + 8 + e][row] = static_cast<double>(half(lane.b[1], e));
    }
  }
  return of;
}

/// A number's exponent, biased, and its power of two: 0 for zeros.
std::uint64_t exponent_of(double x) { return std::bit_cast<std::uint64_t>(x) >> 52 & 0x7ff; }
double power_of_two(std::uint64_t exponent) { return std::bit_cast<double>(exponent << 52); }

/// The nearest float32 that is no larger.
float cut(double x) {
  const auto near = static_cast<float>(x);
  const auto size = [](double y) { return y < 0 ? -y : y; };
  if (size(static_cast<double>(near)) <= size(x)) return near;
  return std::bit_cast<float>(std::bit_cast<std::uint32_t>(near) - 1);
}

/// Sixteen products and what is before, each cut below what the largest of them leaves of 26 bits;
/// their sum is cut to float32. A product is as large as its factors' exponents say.
float add_aligned(float sum, const MmaOperands& with, int row, int column) {
  double terms[kK + 1] = {static_cast<double>(sum)};
  std::uint64_t largest = exponent_of(terms[0]);
  double total = terms[0];
  for (int k = 0; k < kK; ++k) {
    const double a = with.a[row][k], b = with.b[k][column];
    terms[k + 1] = a * b;
    total += a * b;
    if (a != 0 && b != 0)
      largest = std::max(largest, exponent_of(a) + exponent_of(b) - exponent_of(1));
  }
  if (largest == 0 || total - total != 0) return static_cast<float>(total);  // or no number
  const double unit = power_of_two(largest - 25);
  total = 0;
  for (const double term : terms)
    total += static_cast<double>(static_cast<std::int64_t>(term / unit)) * unit;
  return cut(total);
}

void add_row(MmaOrder order, const MmaOperands& with, int row, float (&c)[kN]) {
  if (order == MmaOrder::kRoundedOnce) {
    double sums[kN];
    for (int n = 0; n < kN; ++n) sums[n] = static_cast<double>(c[n]);
    for (int k = 0; k < kK; ++k)
      for (int n = 0; n < kN; ++n) sums[n] += with.a[row][k] * with.b[k][n];
    for (int n = 0; n < kN; ++n) c[n] = static_cast<float>(sums[n]);
    return;
  }
  for (int n = 0; n < kN; ++n) {
    if (order == MmaOrder::kAligned) {
      c[n] = add_aligned(c[n], with, row, n);
      continue;
    }
    for (int i = 0; i < kK; ++i) {
      const int k = order == MmaOrder::kAscending ? i : kK - 1 - i;
      c[n] += static_cast<float>(with.a[row][k] * with.b[k][n]);
    }
  }
}

void load_matrices(Machine& machine, void* const* lanes, bool turned) {
  std::uint16_t rows[kLanes][8];
  for (int l = 0; l < kLanes; ++l) {
    std::fill(std::begin(rows[l]), std::end(rows[l]), std::uint16_t{0xffff});
    const std::byte* row = static_cast<const MatrixLane*>(lanes[l])->row;
    if (machine.read_row(l, row)) std::memcpy(rows[l], row, sizeof rows[l]);
  }
  for (int l = 0; l < kLanes; ++l)
    for (int matrix = 0; matrix < 4; ++matrix) {
      const auto* of = rows + matrix * 8;
      const int i = l / 4, j = l % 4 * 2;
      const std::uint32_t low = turned ? of[j][i] : of[i][j];
      const std::uint32_t high = turned ? of[j + 1][i] : of[i][j + 1];
      static_cast<const MatrixLane*>(lanes[l])->to[matrix] = low | high << 16;
    }
}

}  // namespace

void add_products(MmaOrder order, const MmaOperands& with, float (&c)[kM][kN]) {
  for (int row = 0; row < kM; ++row) add_row(order, with, row, c[row]);
}

void mma_of_warp(Machine& machine, void* const* lanes) {
  const auto held = [&](int row, int n) -> float& {
    const auto& lane = *static_cast<const MmaLane*>(lanes[row % 8 * 4 + n / 2]);
    return lane.c[row / 8 * 2 + n % 2];
  };
  float c[kM][kN];
  for (int row = 0; row < kM; ++row)
    for (int n = 0; n < kN; ++n) c[row][n] = held(row, n);
  add_products(machine.mma_order(), operands_of(lanes), c);
  for (int row = 0; row < kM; ++row)
    for (int n = 0; n < kN; ++n) held(row, n) = c[row][n];
}

void ldmatrix_of_warp(Machine& machine, void* const* lanes) {
  load_matrices(machine, lanes, false);
}

void ldmatrix_trans_of_warp(Machine& machine, void* const* lanes) {
  load_matrices(machine, lanes, true);
}

void any_of_warp(Machine&, void* const* lanes) {
  const auto says = [](void* lane) { return *static_cast<const bool*>(lane); };
  const bool any = std::any_of(lanes, lanes + kLanes, says);
  for (int l = 0; l < kLanes; ++l) *static_cast<bool*>(lanes[l]) = any;
}

}  // namespace troupe::kernels::cuda_twin::ptx
