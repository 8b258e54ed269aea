#pragma once

#include <cstdint>
#include <vector>

#include "kernels/silu_mul.h"
#include "kernels/weight.h"

/// The definition of the products in plain scalar C++, as kernels/README.md has it: nothing here is
/// fast, packed or shared with the kernels.
namespace troupe::kernels {

/// bf(x), widened.
float twin_bf(float x);
/// RN32((code - zero) * s) of every element: [n, k].
std::vector<float> twin_values(const StoredMatrix& stored, const std::byte* codes);

/// How a product is summed.
struct TwinSum {
  Numerics numerics = Numerics::kBf16;
  int slices = 1;
  bool full_precision = false;
  bool f32_weight = false;  ///< of full precision: in two parts

  /// Sum over k of x[i] * w[i]; w as stored.
  float operator()(const float* x, const float* w, std::int64_t k) const;

 private:
  float slice(const float* x, const float* w, std::int64_t k) const;
};

/// act(gate, up).
float twin_act(GatedAct act, float gate, float up);

}  // namespace troupe::kernels
