#pragma once

#include <doctest/doctest.h>

#include <cmath>
#include <cstring>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "kernels/context.h"
#include "kernels/matrix.h"
#include "kernels/packed_matrix.h"
#include "runtime/bf16.h"

namespace troupe::kernels {

/// A context with its own arena, for one family and a number of threads.
struct TestContext {
  explicit TestContext(Numerics numerics, int threads = 1)
      : pool(threads), context{numerics, &pool, &scratch} {}
  operator const Context&() const { return context; }

  Scratch scratch;
  ThreadPool pool;
  Context context;
};

inline std::vector<float> random_values(std::size_t n, unsigned seed, float scale = 1) {
  std::mt19937 engine(seed);
  std::vector<float> v(n);
  // The generator's bits are standardised, the distributions of the library are not.
  for (float& x : v) x = (static_cast<float>(engine() >> 8) / (1 << 23) - 1) * scale;
  return v;
}

inline std::vector<Bf16> to_bf16(const std::vector<float>& x) {
  std::vector<Bf16> out;
  for (float v : x) out.push_back(troupe::to_bf16(v));
  return out;
}

inline float rounded(float x) { return to_float(troupe::to_bf16(x)); }

inline bool same_bits(const float* a, const float* b, std::size_t n) {
  return std::memcmp(a, b, n * sizeof(float)) == 0;
}

inline bool rounds_activations(Numerics n) {
  return n == Numerics::kAvx512Bf16 || n == Numerics::kAmxBf16;
}

inline PackedMatrix pack(Numerics numerics, const WeightSource& source, PackOptions options = {}) {
  auto packed = pack_matrix(numerics, source, options);
  REQUIRE(packed.ok());
  CHECK(packed->bytes() ==
        packed_bytes(numerics, source.type, source.n, source.k, options));
  return std::move(packed).value();
}

/// The numbers of rows that invariance is tried at.
inline const std::vector<std::size_t> kRowCounts = {1, 2, 3, 7, 16, 17, 33, 64, 100, 512};

}  // namespace troupe::kernels
