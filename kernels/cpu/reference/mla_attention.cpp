#include <algorithm>

#include "kernels/cpu/mla_heads.h"
#include "kernels/scalar_math.h"
#include "runtime/limits.h"

namespace troupe::kernels::cpu {
namespace {

const float* slot(const MlaHeads& h, std::int32_t position) {
  const auto p = static_cast<std::size_t>(position);
  const auto block = static_cast<std::size_t>(h.table[p / h.block_size]);
  const auto* base = static_cast<const std::byte*>(h.cache);
  return reinterpret_cast<const float*>(base +
                                        (block * h.block_size + p % h.block_size) * h.slot_bytes);
}

/// Element i belongs to running sum i % 8; the sums are joined as a binary tree.
float dot(const float* a, const float* b, std::size_t n) {
  float sum[8] = {};
  std::size_t i = 0;
  for (; i + 8 <= n; i += 8)
    for (std::size_t j = 0; j < 8; ++j) sum[j] += a[i + j] * b[i + j];
  for (std::size_t j = 0; i + j < n; ++j) sum[j] += a[i + j] * b[i + j];
  return ((sum[0] + sum[4]) + (sum[2] + sum[6])) + ((sum[1] + sum[5]) + (sum[3] + sum[7]));
}

void one_head(const MlaHeads& h, std::size_t head) {
  const float* latent = h.latent + head * h.latent_stride;
  const float* rotary = h.rotary + head * h.rotary_stride;
  float* out = h.out + head * h.out_stride;
  std::fill_n(out, h.kv_lora, 0.0f);
  float highest = -__builtin_inff(), total = 0;
  for (std::int32_t first = 0; first <= h.position; first += limits::kAttentionChunk) {
    const std::int32_t count = std::min(limits::kAttentionChunk, h.position + 1 - first);
    float score[limits::kAttentionChunk];
    float chunk_highest = highest;
    for (std::int32_t p = 0; p < count; ++p) {
      const float* c = slot(h, first + p);
      score[p] = h.scale * (dot(latent, c, h.kv_lora) + dot(rotary, c + h.kv_lora, h.rope));
      chunk_highest = score[p] > chunk_highest ? score[p] : chunk_highest;
    }
    // What was summed before is brought to the new maximum; the first time there is nothing.
    const float shrink = first == 0 ? 0.0f : exp_f32(highest - chunk_highest);
    highest = chunk_highest;
    total *= shrink;
    for (std::size_t i = 0; i < h.kv_lora; ++i) out[i] *= shrink;
    for (std::int32_t p = 0; p < count; ++p) {
      const float* c = slot(h, first + p);
      const float weight = exp_f32(score[p] - highest);
      total += weight;
      for (std::size_t i = 0; i < h.kv_lora; ++i) out[i] += weight * c[i];
    }
  }
  for (std::size_t i = 0; i < h.kv_lora; ++i) out[i] /= total;
}

}  // namespace

void mla_heads_reference(const MlaHeads& h) {
  for (std::size_t head = 0; head < h.heads; ++head) one_head(h, head);
}

}  // namespace troupe::kernels::cpu
