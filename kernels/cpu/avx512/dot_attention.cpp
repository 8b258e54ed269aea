#include "kernels/cpu/avx512/simd.h"
#include "kernels/cpu/inner/lanes_math.h"
#include "kernels/cpu/inner/attention_panels.h"
#include "kernels/cpu/inner/attention_pairs.h"
#include "kernels/cpu/inner/attention.h"

namespace troupe::kernels {
namespace {

/// The two products of attention by vdpbf16ps: every pair of a row is multiplied into all lanes.
struct DotProducts : PairPanels {
  static constexpr int kRows = 8;
  static constexpr bool kOneChain = true;

  static void product(const std::byte* a, std::int64_t a_bytes, std::int64_t rows,
                      const std::byte* panel, std::int64_t blocks, float* c, std::int64_t c_stride,
                      bool more) {
    some_rows<kRows>(a, a_bytes, rows, panel, blocks, c, c_stride, more);
  }

 private:
  template <int R>
  static void some_rows(const std::byte* a, std::int64_t a_bytes, std::int64_t rows,
                        const std::byte* panel, std::int64_t blocks, float* c,
                        std::int64_t c_stride, bool more) {
    if (rows == R) return rows_product<R>(a, a_bytes, panel, blocks, c, c_stride, more);
    if constexpr (R > 1)
      some_rows<R - 1>(a, a_bytes, rows, panel, blocks, c, c_stride, more);
  }

  template <int R>
  static void rows_product(const std::byte* a, std::int64_t a_bytes, const std::byte* panel,
                           std::int64_t blocks, float* c, std::int64_t c_stride, bool more) {
    for (std::int64_t block = 0; block < blocks; ++block) {
      F32 sum[R][2] = {};
#pragma GCC unroll 4
      for (int pair = 0; pair < 16; ++pair, a += 4, panel += kPairBytes) {
        const I32 first = load_dwords(panel), last = load_dwords(panel + kLanes * 4);
#pragma GCC unroll 8
        for (int r = 0; r < R; ++r) {
          const I32 x = all_pairs(a + r * a_bytes);
          sum[r][0] = add_dot(sum[r][0], x, first);
          sum[r][1] = add_dot(sum[r][1], x, last);
        }
      }
      const bool add = more || block > 0;
#pragma GCC unroll 8
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          float* to = c + r * c_stride + v * kLanes;
          save(to, add ? load(to) + sum[r][v] : sum[r][v]);
        }
    }
  }
};

}  // namespace

namespace cpu {
const AttentionKernel kAttentionDot = {DotProducts::query_bytes, DotProducts::prepare,
                                       attention_tile<DotProducts>, fold_partial};
}  // namespace cpu

}  // namespace troupe::kernels
