#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/inner/products_codes_avx512.h"

namespace troupe::kernels::cpu {
namespace {

/// Products by vdpbf16ps: the activations are bf16.
struct DotKernel {
  static constexpr std::int64_t kElementBytes = 2;
  // Two sums a row, and the weights.
  static constexpr std::int64_t kRowsAtOnce = 12;
  // As few go tile after tile, which is how a panel lies; more share what is loaded of their own.
  static constexpr std::int64_t kRowsInOrder = 4;
  static constexpr std::int64_t kCodeRows = 4;  // at most

  static std::int64_t code_rows(const WeightLayout& l) { return cpu::code_rows(l); }
  static bool held(const WeightLayout& l) { return l.codes == Codes::kBf16; }

  static void expand(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                     std::int64_t count, std::byte* out) {
    with_codes(l, panel, [&](auto& codes) { expand_codes(codes, l, panel, block, count, out); });
  }

  static void multiply(const Stretch& s) {
    Bf16Tiles tiles(s.w);
    multiply<kRowsAtOnce>(tiles, 0, s);
  }

  static void multiply_codes(const WeightLayout& l, const std::byte* panel, std::int64_t block,
                             const Stretch& s) {
    with_codes(l, panel, [&](auto& codes) { multiply<kCodeRows>(codes, block, s); });
  }

 private:
  template <int R, int V, class Form>
  [[gnu::always_inline]] static void add_block(const Form& w, const std::byte* const* x, int v,
                                               F32 (&sum)[R][V]) {
    std::int64_t at = 0;
#pragma GCC unroll 4
    for (int i = 0; i < 16 / Form::kPairs; ++i) {
      const auto first = w.step(v, i), last = w.step(v + V - 1, i);
#pragma GCC unroll 8
      for (int j = 0; j < Form::kPairs; ++j, at += 4) {
        const I32 pairs[] = {first.pair(j).packed(), last.pair(j).packed()};
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r) {
          const I32 pair = all_pairs(x[r] + at);
#pragma GCC unroll 2
          for (int n = 0; n < V; ++n) sum[r][n] = add_dot(sum[r][n], pair, pairs[n]);
        }
      }
    }
  }

  template <int R, class Form>
  static void rows(Form& w, std::int64_t block, const Stretch& s, std::int64_t first) {
    const std::byte* x[R];
    for (int r = 0; r < R; ++r) x[r] = s.x + (first + r) * s.x_bytes;
    float* c = s.c + first * 32;
    if (s.begin) std::memset(c, 0, R * 32 * sizeof(float));
    constexpr int V = R <= kRowsInOrder ? 1 : 2;
    for (std::int64_t b = 0; b < s.blocks; ++b) {
      // The first rows ask for what comes next.
      if (first == 0) s.ask_ahead(b);
      w.go(block + b);
      for (int v = 0; v < 2; v += V) {
        F32 sum[R][V] = {};
        add_block<R, V>(w, x, v, sum);
#pragma GCC unroll 12
        for (int r = 0; r < R; ++r)
          for (int n = 0; n < V; ++n) {
            float* to = c + r * 32 + (v + n) * kLanes;
            save(to, load(to) + sum[r][n]);
          }
      }
      for (int r = 0; r < R; ++r) x[r] += 64;
    }
  }

  template <int R, class Form>
  static void some_rows(Form& w, std::int64_t block, const Stretch& s, std::int64_t first,
                        std::int64_t count) {
    if (count == R) return rows<R>(w, block, s, first);
    if constexpr (R > 1) some_rows<R - 1>(w, block, s, first, count);
  }

  template <int kMost, class Form>
  static void multiply(Form& w, std::int64_t block, const Stretch& s) {
    const std::int64_t times = (s.rows + kMost - 1) / kMost;
    for (std::int64_t i = 0; i < times; ++i) {
      const std::int64_t first = s.rows * i / times;
      some_rows<kMost>(w, block, s, first, s.rows * (i + 1) / times - first);
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
