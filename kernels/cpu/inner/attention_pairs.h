#pragma once

// After inner/attention_panels.h.

namespace troupe::kernels {
namespace {

/// What products of attention that multiply pairs of bf16 share: rows of queries or weights are
/// bf16 as they lie, panels are pairs interleaved, [block][pair][kWidth][2].
struct PairPanels {
  using Number = std::uint16_t;
  static constexpr int kStretch = 192;
  static constexpr std::int64_t kPairBytes = kWidth * 4;

  static std::int64_t query_bytes(std::int64_t k_dim) { return (k_dim + 31) / 32 * 32 * 2; }

  static void prepare(const float* q, std::int64_t k_dim, std::byte* prepared) {
    for (std::int64_t i = 0; i < query_bytes(k_dim) / 2; i += kLanes) {
      alignas(64) float x[kLanes] = {};
      for (int j = 0; j < kLanes && i + j < k_dim; ++j) x[j] = q[i + j];
      save_halves(prepared + i * 2, (I32)bf(load(x)) >> 16);
    }
  }

  static void key_panel(const std::byte* const* rows, const std::byte* const* values, DType dtype,
                        std::int64_t k_dim, std::int64_t k, std::int64_t count, std::byte* panel) {
    for (int half = 0; half < 2; ++half)
      for (std::int64_t at = 0; at < count; at += kWidth) {
        I32 pairs[kLanes];
        transposed_keys(rows + half * kLanes, values == nullptr ? nullptr : values + half * kLanes,
                        dtype, k_dim, k + at, pairs);
        for (int j = 0; j < kLanes; ++j)
          save_dwords(panel + (at / 2 + j) * kPairBytes + half * kLanes * 4, pairs[j]);
      }
  }

  static void value_panel(const std::byte* const* rows, const std::byte* const* next, DType dtype,
                          std::int64_t v_dim, std::int64_t at, std::int64_t count,
                          std::byte* panel) {
    with_numbers(dtype, v_dim, at, [&](const auto& numbers) {
      for (std::int64_t p = 0; p < count; p += 2) {
        for (std::int64_t i = p; i < p + 2; ++i) __builtin_prefetch(next[i] + numbers.bytes, 0, 2);
        const I32 even = numbers.of(rows[p]), odd = numbers.of(rows[p + 1]);
        std::byte* to = panel + p / 2 * kPairBytes;
        save_dwords(to, first_halves(even) | (first_halves(odd) << 16));
        save_dwords(to + kLanes * 4, last_halves(even) | (last_halves(odd) << 16));
      }
    });
  }

  /// In place: a weight is half as wide.
  static void keep_weights(float* weights, std::int64_t first, std::int64_t last) {
    auto* to = reinterpret_cast<std::byte*>(weights);
    for (std::int64_t p = first; p < last; p += kLanes)
      save_halves(to + p * 2, (I32)load(weights + p) >> 16);
  }
};

}  // namespace
}  // namespace troupe::kernels
