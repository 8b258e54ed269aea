#pragma once

// After inner/attention_panels.h.

namespace troupe::kernels {
namespace {

/// The two products of attention by fused multiply-adds: float32 panels, their columns the lanes,
/// of which every number of a row is multiplied into all.
struct FmaProducts {
  using Number = float;
  static constexpr int kRows = kLanes == 16 ? 6 : 3;  // as many as there are registers for
  static constexpr int kStretch = 192;                // k of keys whose panel stays near
  static constexpr bool kOneChain = false;            // even and odd k have one each

  static std::int64_t query_bytes(std::int64_t k_dim) { return (k_dim + 31) / 32 * 32 * 4; }

  static void prepare(const float* q, std::int64_t k_dim, std::byte* prepared) {
    auto* to = reinterpret_cast<float*>(prepared);
    std::int64_t i = 0;
    for (; i + kLanes <= k_dim; i += kLanes) save(to + i, bf(load(q + i)));
    alignas(64) float tail[kLanes] = {};
    for (std::int64_t j = i; j < k_dim; ++j) tail[j - i] = q[j];
    for (; i < (k_dim + 31) / 32 * 32; i += kLanes) {
      save(to + i, bf(load(tail)));
      for (float& x : tail) x = 0;
    }
  }

  /// panel [count][kWidth]: keys of kWidth positions, k from `k` on.
  static void key_panel(const std::byte* const* rows, const std::byte* const* values, DType dtype,
                        std::int64_t k_dim, std::int64_t k, std::int64_t count, std::byte* panel) {
    auto* to = reinterpret_cast<float*>(panel);
    for (int half = 0; half < 2; ++half)
      for (std::int64_t at = 0; at < count; at += kWidth) {
        I32 pairs[kLanes];
        transposed_keys(rows + half * kLanes, values == nullptr ? nullptr : values + half * kLanes,
                        dtype, k_dim, k + at, pairs);
        float* first = to + at * kWidth + half * kLanes;
        for (int j = 0; j < kLanes; ++j) {
          save(first + 2 * j * kWidth, (F32)(pairs[j] << 16));
          save(first + (2 * j + 1) * kWidth, (F32)(pairs[j] & all(~0xffff)));
        }
      }
  }

  /// panel [count][kWidth]: the values of `count` positions, features [at, at + kWidth).
  static void value_panel(const std::byte* const* rows, const std::byte* const* next, DType dtype,
                          std::int64_t v_dim, std::int64_t at, std::int64_t count,
                          std::byte* panel) {
    auto* const to = reinterpret_cast<float*>(panel);
    with_numbers(dtype, v_dim, at, [&](const auto& numbers) {
      for (std::int64_t p = 0; p < count; ++p) {
        __builtin_prefetch(next[p] + numbers.bytes, 0, 2);
        const I32 both = numbers.of(rows[p]);
        save(to + p * kWidth, (F32)(first_halves(both) << 16));
        save(to + p * kWidth + kLanes, (F32)(last_halves(both) << 16));
      }
    });
  }

  /// Keeps the weights of a tile as rows of products: they are.
  static void keep_weights(float*, std::int64_t, std::int64_t) {}

  /// c [rows][kWidth] = (or +=) a [rows][32 blocks] times panel [32 blocks][kWidth].
  static void product(const std::byte* a, std::int64_t a_bytes, std::int64_t rows,
                      const std::byte* panel, std::int64_t blocks, float* c, std::int64_t c_stride,
                      bool more) {
    const auto* b = reinterpret_cast<const float*>(panel);
    const auto* x = reinterpret_cast<const float*>(a);
    const std::int64_t stride = a_bytes / 4;
    switch (rows) {
      case 1: return rows_product<1>(x, stride, b, blocks, c, c_stride, more);
      case 2: return rows_product<2>(x, stride, b, blocks, c, c_stride, more);
      case 3: return rows_product<3>(x, stride, b, blocks, c, c_stride, more);
    }
    if constexpr (kRows > 3) {
      switch (rows) {
        case 4: return rows_product<4>(x, stride, b, blocks, c, c_stride, more);
        case 5: return rows_product<5>(x, stride, b, blocks, c, c_stride, more);
        case 6: return rows_product<6>(x, stride, b, blocks, c, c_stride, more);
      }
    }
  }

 private:
  template <int R>
  static void rows_product(const float* a, std::int64_t a_stride, const float* b,
                           std::int64_t blocks, float* c, std::int64_t c_stride, bool more) {
    for (std::int64_t block = 0; block < blocks; ++block, a += 32) {
      F32 even[R][2] = {}, odd[R][2] = {};
#pragma GCC unroll 4
      for (int k = 0; k < 32; k += 2, b += 2 * kWidth) {
        const F32 e0 = load(b), e1 = load(b + kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const F32 x = all(a[r * a_stride + k]);
          even[r][0] = fma(x, e0, even[r][0]);
          even[r][1] = fma(x, e1, even[r][1]);
        }
        const F32 o0 = load(b + kWidth), o1 = load(b + kWidth + kLanes);
#pragma GCC unroll 6
        for (int r = 0; r < R; ++r) {
          const F32 x = all(a[r * a_stride + k + 1]);
          odd[r][0] = fma(x, o0, odd[r][0]);
          odd[r][1] = fma(x, o1, odd[r][1]);
        }
      }
      const bool add = more || block > 0;
#pragma GCC unroll 6
      for (int r = 0; r < R; ++r)
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          float* to = c + r * c_stride + v * kLanes;
          const F32 sum = even[r][v] + odd[r][v];
          save(to, add ? load(to) + sum : sum);
        }
    }
  }
};

}  // namespace
}  // namespace troupe::kernels
