#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/inner/products_codes_avx512.h"
#include "kernels/cpu/inner/products_vectors.h"

namespace troupe::kernels::cpu {
namespace {

/// Products by vdpbf16ps: the activations are bf16.
struct DotKernel : VectorKernel<DotKernel> {
  static constexpr std::int64_t kElementBytes = 2;
  // Tile after tile, which is how a panel lies: a sum a row. More rows, or both tiles side by side,
  // were slower on a Zen 4 (GFLOP/s of 512 rows: 400 with 8, 350 with 12 by two tiles).
  static constexpr std::int64_t kRowsAtOnce = 8, kRowsInOrder = 8;
  static constexpr std::int64_t kCodeRows = 4;  // at most

 private:
  friend VectorKernel<DotKernel>;

  template <int R, class Form>
  static void rows(Form& w, std::int64_t block, const Stretch& s, std::int64_t first) {
    const std::byte* x[R];
    for (int r = 0; r < R; ++r) x[r] = s.x + (first + r) * s.x_bytes;
    float* c = s.c + first * 32;
    if (s.begin) std::memset(c, 0, R * 32 * sizeof(float));
    for (std::int64_t b = 0; b < s.blocks; ++b) {
      // The first rows ask for what comes next.
      if (first == 0) s.ask_ahead(b);
      w.go(block + b);
      for (int v = 0; v < 2; ++v) {
        F32 sum[R] = {};
        add_block<R>(w, x, b * 64, v, sum);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          float* to = c + r * 32 + v * kLanes;
          save(to, load(to) + sum[r]);
        }
      }
    }
  }

  template <int R, class Form>
  [[gnu::always_inline]] static void add_block(const Form& w, const std::byte* const* x,
                                               std::int64_t at, int v, F32 (&sum)[R]) {
#pragma GCC unroll 4
    for (int i = 0; i < 16 / Form::kPairs; ++i) {
      const auto step = w.step(v, i);
#pragma GCC unroll 8
      for (int j = 0; j < Form::kPairs; ++j, at += 4) {
        const I32 weights = step.pair(j).packed();
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) sum[r] = add_dot(sum[r], all_pairs(x[r] + at), weights);
      }
    }
  }
};

void run_dot(const ProductJob& job) {
  DotKernel kernel;
  ProductPass<DotKernel>(job, kernel).run();
}

constexpr ProductKernels kDotProducts = {run_dot, put_pairs, 2, true};

}  // namespace

const ProductKernels& products_dot() { return kDotProducts; }

}  // namespace troupe::kernels::cpu
