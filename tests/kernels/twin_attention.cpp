#include <algorithm>
#include <cmath>

#include "kernels/scalar_math.h"
#include "runtime/limits.h"
#include "tests/kernels/twin.h"

namespace troupe::kernels {
namespace {

using Row = std::vector<float>;

constexpr std::size_t kChunk = limits::kAttentionChunk;

Row padded(Row v, std::size_t to) {
  v.resize((v.size() + to - 1) / to * to);
  return v;
}

/// reference: two products of 8 running sums each.
float dot_reference(const float* a, const float* b, std::size_t n) {
  float s[8] = {};
  for (std::size_t i = 0; i < n; ++i) s[i % 8] += a[i] * b[i];
  return ((s[0] + s[4]) + (s[2] + s[6])) + ((s[1] + s[5]) + (s[3] + s[7]));
}

/// avx2: of every 16 elements the 8 even ones and the 8 odd ones in running sums of their own.
float dot_avx2(const Row& q, const Row& k) {
  float s[16] = {};
  for (std::size_t i = 0; i < q.size(); ++i) s[i % 16] = std::fma(q[i], k[i], s[i % 16]);
  float v[8];
  for (std::size_t j = 0; j < 8; ++j) v[j] = s[2 * j] + s[2 * j + 1];
  return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7]));
}

/// avx512_bf16: 16 running sums over pairs.
float dot_avx512(const Row& q, const Row& k) {
  float s[16] = {};
  for (std::size_t i = 0; i < q.size(); i += 2) {
    float& sum = s[i / 2 % 16];
    sum = twin_dot_pair(sum, &q[i], &k[i]);
  }
  float t[4];
  for (std::size_t j = 0; j < 4; ++j)
    t[j] = (s[4 * j] + s[4 * j + 2]) + (s[4 * j + 1] + s[4 * j + 3]);
  return (t[0] + t[2]) + (t[1] + t[3]);
}

struct TwinContext {
  Numerics numerics;
  const AttentionQuestion& q;
  std::vector<Row> slots;  // [positions][kv_lora + rope], as the cache holds them

  float score(const Row& query, const Row& slot) const {
    constexpr float kScale = AttentionQuestion::kScale;
    if (numerics == Numerics::kReference)
      return kScale * (dot_reference(query.data(), slot.data(), q.kv_lora) +
                       dot_reference(&query[q.kv_lora], &slot[q.kv_lora], q.rope));
    if (numerics == Numerics::kAvx2) return kScale * dot_avx2(padded(query, 16), padded(slot, 16));
    Row rounded = padded(query, 32);
    std::transform(rounded.begin(), rounded.end(), rounded.begin(), rounded_to_bf16);
    return dot_avx512(rounded, padded(slot, 32)) * kScale;
  }

  /// The weights' sum of a chunk; `reference` adds to what it has one after the other.
  float add_weights(float total, const Row& weights) const {
    if (numerics == Numerics::kReference) {
      for (const float w : weights) total += w;
      return total;
    }
    float s[16] = {};
    for (std::size_t p = 0; p < weights.size(); ++p) s[p % 16] += weights[p];
    for (std::size_t half = 8; half > 0; half /= 2)
      for (std::size_t j = 0; j < half; ++j) s[j] += s[j + half];
    return total + s[0];
  }

  Row attend(const Row& query, std::size_t count) const {
    Row out(q.kv_lora);
    float highest = -__builtin_inff(), total = 0;
    for (std::size_t first = 0; first < count; first += kChunk) {
      Row weights;
      for (std::size_t p = first; p < std::min(count, first + kChunk); ++p)
        weights.push_back(score(query, slots[p]));
      const float before = highest;
      highest = std::max(before, *std::max_element(weights.begin(), weights.end()));
      const float shrink = first == 0 ? 0.0f : exp_f32(before - highest);
      for (float& w : weights) w = exp_f32(w - highest);
      total = add_weights(total * shrink, weights);
      for (std::size_t d = 0; d < q.kv_lora; ++d) {
        out[d] *= shrink;
        for (std::size_t p = 0; p < weights.size(); ++p) {
          const float value = slots[first + p][d];
          out[d] = numerics == Numerics::kReference ? out[d] + weights[p] * value
                                                    : std::fma(weights[p], value, out[d]);
        }
      }
    }
    for (float& x : out) x /= total;
    return out;
  }
};

}  // namespace

std::vector<float> twin_attention(Numerics numerics, const AttentionQuestion& q, Integers in) {
  const auto count = static_cast<std::size_t>(q.last) + 1;
  const bool rounds = wire_type(numerics) == WireType::kBf16;
  const Row latent = in.values(count * q.kv_lora), rotary = in.values(count * q.rope);
  const Row q_latent = in.values(q.rows * q.heads * q.kv_lora);
  const Row q_rotary = in.values(q.rows * q.heads * q.rope);
  const auto join = [&](const Row& a, const Row& b, std::size_t i) {
    Row row(a.begin() + static_cast<std::ptrdiff_t>(i * q.kv_lora),
            a.begin() + static_cast<std::ptrdiff_t>((i + 1) * q.kv_lora));
    row.insert(row.end(), b.begin() + static_cast<std::ptrdiff_t>(i * q.rope),
               b.begin() + static_cast<std::ptrdiff_t>((i + 1) * q.rope));
    return row;
  };
  TwinContext context{numerics, q, {}};
  for (std::size_t p = 0; p < count; ++p) {
    Row slot = join(latent, rotary, p);
    if (rounds) std::transform(slot.begin(), slot.end(), slot.begin(), rounded_to_bf16);
    context.slots.push_back(std::move(slot));
  }
  std::vector<float> out;
  for (std::size_t i = 0; i < q.rows * q.heads; ++i) {
    const Row one = context.attend(join(q_latent, q_rotary, i), count - i / q.heads);
    out.insert(out.end(), one.begin(), one.end());
  }
  return out;
}

}  // namespace troupe::kernels
