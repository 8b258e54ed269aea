#pragma once

// After a family's simd.h and its form of codes.

#include "kernels/cpu/inner/products_vectors.h"

/// Products with plain fused multiply-adds; activations are float32 that were rounded to bf16.
namespace troupe::kernels::cpu {
namespace {

struct FmaKernel : VectorKernel<FmaKernel> {
  static constexpr std::int64_t kElementBytes = 4;
  // Four sums a row and what makes the weights fit the registers.
  static constexpr int kRegisters = 2 * kLanes;
  static constexpr std::int64_t kRowsAtOnce = 6;
  // As few go tile after tile, which is how a panel lies; more share what is loaded of their own.
  static constexpr std::int64_t kRowsInOrder = 4;
  static constexpr std::int64_t kCodeRows = kLanes / 4;  // at most

 private:
  friend VectorKernel<FmaKernel>;

  /// Of V kLanes outputs.
  template <int R, int V>
  using Sums = F32[R][V];

  template <int R, int V>
  [[gnu::always_inline]] static void add(const float* const* x, std::int64_t k, const F32 (&w)[V],
                                         Sums<R, V>& sum) {
#pragma GCC unroll 8
    for (int r = 0; r < R; ++r) {
      const F32 value = all(x[r][k]);
#pragma GCC unroll 2
      for (int i = 0; i < V; ++i) sum[r][i] = fma(value, w[i], sum[r][i]);
    }
  }

  template <int R, int V, bool kEven, bool kOdd, class Pair>
  [[gnu::always_inline]] static void add_pair(const float* const* x, std::int64_t k,
                                              const Pair (&pair)[V], Sums<R, V>& even,
                                              Sums<R, V>& odd) {
    F32 w[V];
    if (kEven) {
      for (int i = 0; i < V; ++i) w[i] = pair[i].even();
      add<R, V>(x, k, w, even);
    }
    if (kOdd) {
      for (int i = 0; i < V; ++i) w[i] = pair[i].odd();
      add<R, V>(x, k + 1, w, odd);
    }
  }

  /// The fma chains of a block from k on: of even k, of odd k, or of both.
  template <int R, int V, bool kEven, bool kOdd, class Form>
  [[gnu::always_inline]] static void chains(const Form& w, const float* const* x, std::int64_t k,
                                            int v, Sums<R, V>& even, Sums<R, V>& odd) {
#pragma GCC unroll 2
    for (int i = 0; i < 16 / Form::kPairs; ++i) {
      if constexpr (V == 1) {
        const auto step = w.step(v, i);
#pragma GCC unroll 8
        for (int j = 0; j < Form::kPairs; ++j, k += 2)
          add_pair<R, V, kEven, kOdd>(x, k, {step.pair(j)}, even, odd);
      } else {
        const auto first = w.step(v, i), second = w.step(v + 1, i);
#pragma GCC unroll 8
        for (int j = 0; j < Form::kPairs; ++j, k += 2)
          add_pair<R, V, kEven, kOdd>(x, k, {first.pair(j), second.pair(j)}, even, odd);
      }
    }
  }

  template <int R, class Form>
  static void rows(Form& w, std::int64_t block, const Stretch& s, std::int64_t first) {
    const float* x[R];
    for (int r = 0; r < R; ++r)
      x[r] = reinterpret_cast<const float*>(s.x + (first + r) * s.x_bytes);
    float* c = s.c + first * 32;
    if (s.begin) std::memset(c, 0, R * 32 * sizeof(float));
    constexpr int V = R <= kRowsInOrder ? 16 / kLanes : 2;
    for (std::int64_t b = 0; b < s.blocks; ++b) {
      // The first rows ask for what comes next.
      if (first == 0) s.ask_ahead(b);
      w.go(block + b);
      for (int v = 0; v < 32 / kLanes; v += V) {
        Sums<R, V> even = {}, odd = {};
        if constexpr (2 * V * R + 6 <= kRegisters) {
          chains<R, V, true, true>(w, x, b * 32, v, even, odd);
        } else {
          chains<R, V, true, false>(w, x, b * 32, v, even, odd);
          chains<R, V, false, true>(w, x, b * 32, v, even, odd);
        }
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r)
          for (int i = 0; i < V; ++i) {
            float* to = c + r * 32 + (v + i) * kLanes;
            save(to, load(to) + (even[r][i] + odd[r][i]));
          }
      }
    }
  }
};

void run_fma(const ProductJob& job) {
  FmaKernel kernel;
  ProductPass<FmaKernel>(job, kernel).run();
}

void put_rounded(const void* x, bool bf16, std::int64_t count, std::byte* out,
                 std::int64_t low_bytes) {
  const auto* from = static_cast<const std::byte*>(x);
  auto* to = reinterpret_cast<float*>(out);
  auto* low = low_bytes > 0 ? reinterpret_cast<float*>(out + low_bytes) : nullptr;
  bf16 ? put_floats<true>(from, count, to, low) : put_floats<false>(from, count, to, low);
}

constexpr ProductKernels kFmaProducts = {run_fma, put_rounded, 4, true};

}  // namespace
}  // namespace troupe::kernels::cpu
