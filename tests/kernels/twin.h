#pragma once

#include <cstdint>
#include <vector>

#include "kernels/known_questions.h"
#include "runtime/numerics.h"

/// Every family's definition in plain scalar C++, one output after the other, as kernels/README.md
/// has it. Nothing here is fast, vectorised by hand, packed or paged.
namespace troupe::kernels {

/// The digest that ask() must give.
std::uint64_t twin_answer(Numerics numerics, std::size_t question);

/// sum over k of x[i] w[i], as `linear` sums it.
struct TwinProduct {
  Numerics numerics = Numerics::kReference;
  int slices = 1;
  bool full_precision = false;

  float operator()(const float* x, const float* w, std::size_t k) const;
  bool rounds() const;  ///< x and w are rounded to bf16 first
};

/// x after a journey through bf16.
float rounded_to_bf16(float x);
/// One step of vdpbf16ps: a pair of bf16 products added to a sum; odd first.
float twin_dot_pair(float sum, const float* x, const float* w);

/// out [rows, heads, kv_lora] of an attention question.
std::vector<float> twin_attention(Numerics numerics, const AttentionQuestion& q, Integers in);

}  // namespace troupe::kernels
