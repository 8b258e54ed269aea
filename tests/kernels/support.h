#pragma once

#include <algorithm>

#include "product_support.h"

/// What tests of attention and of rows share.
namespace troupe::kernels {

/// What is tested here, with a cache of e4m3 and on a small GPU too.
inline std::vector<Family> cache_families() {
  std::vector<Family> all;
  const auto add = [&](Family f) {
    all.push_back(f);
    f.numerics = with_kv_fp8(f.numerics);
    if (f.numerics != all.back().numerics) all.push_back(f);
  };
  for (Family f : families()) {
    add(f);
    if (f.small_seed == 0) continue;
    f.order_seed = f.small_seed;
    add(f);
  }
  return all;
}

inline std::vector<float> random_values(std::size_t n, unsigned seed, float scale = 1) {
  std::vector<float> v = Random(seed).values(static_cast<std::int64_t>(n));
  for (float& x : v) x *= scale;
  return v;
}

/// A dense matrix on a vector, which must stay.
inline Tensor matrix(std::vector<float>& v, std::int64_t rows) {
  return host_tensor(v.data(), DType::kF32, rows, static_cast<std::int64_t>(v.size()) / rows);
}

inline bool same_bits(const float* a, const float* b, std::size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

/// The numbers of rows that invariance is tried at.
inline const std::vector<std::size_t> kRowCounts = {1, 2, 3, 7, 16, 17, 33, 64, 100, 512};

}  // namespace troupe::kernels
