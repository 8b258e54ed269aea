#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/mla_heads.h"
#include "kernels/cpu/mla_softmax.h"

namespace troupe::kernels::cpu {
namespace {

constexpr int kChunk = limits::kAttentionChunk;
using Slot = const std::uint16_t*;  // [kv_lora + rope] bf16

/// Queries stay float32, parted as the halves of a dword of bf16 are: every 16 elements hold the 8
/// even ones, then the 8 odd ones.
struct Room {
  float* q;  // [heads, width]
  std::size_t width;
  float* score;  // [heads, kChunk]
};

void part_queries(const MlaHeads& h, const Room& room) {
  std::memset(room.q, 0, h.heads * room.width * sizeof(float));
  for (std::size_t i = 0; i < h.heads; ++i) {
    for (std::size_t d = 0; d < h.kv_lora + h.rope; ++d) {
      const float value = d < h.kv_lora ? h.latent[i * h.latent_stride + d]
                                        : h.rotary[i * h.rotary_stride + d - h.kv_lora];
      room.q[i * room.width + d / 16 * 16 + d % 2 * 8 + d % 16 / 2] = value;
    }
  }
}

Slot slot(const MlaHeads& h, std::int32_t position) {
  const auto p = static_cast<std::size_t>(position);
  const auto block = static_cast<std::size_t>(h.table[p / h.block_size]);
  return reinterpret_cast<Slot>(static_cast<const std::byte*>(h.cache) +
                                (block * h.block_size + p % h.block_size) * h.slot_bytes);
}

/// 16 elements from d on; those beyond n are zeros.
__m256i load_16(Slot from, std::size_t d, std::size_t n) {
  if (d + 16 <= n) return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from + d));
  alignas(32) std::uint16_t tail[16] = {};
  std::memcpy(tail, from + d, (n - d) * sizeof(std::uint16_t));
  return _mm256_load_si256(reinterpret_cast<const __m256i*>(tail));
}

float sum_lanes(__m256 v) {
  const __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 b = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_shuffle_ps(b, b, 1)));
}

/// Scores of four heads at one position; two running sums a head, of even and odd elements.
void score_block(const Room& room, std::size_t n, const float* const* q, Slot k, float scale,
                 float* const* out) {
  const __m256i upper = _mm256_set1_epi32(static_cast<int>(0xffff0000u));
  __m256 sum[4][2];
  for (auto& s : sum) s[0] = s[1] = _mm256_setzero_ps();
  for (std::size_t d = 0; d < room.width; d += 16) {
    const __m256i both = load_16(k, d, n);
    const __m256 even = _mm256_castsi256_ps(_mm256_slli_epi32(both, 16));
    const __m256 odd = _mm256_castsi256_ps(_mm256_and_si256(both, upper));
    for (int i = 0; i < 4; ++i) {
      sum[i][0] = _mm256_fmadd_ps(_mm256_loadu_ps(q[i] + d), even, sum[i][0]);
      sum[i][1] = _mm256_fmadd_ps(_mm256_loadu_ps(q[i] + d + 8), odd, sum[i][1]);
    }
  }
  for (int i = 0; i < 4; ++i) *out[i] = scale * sum_lanes(_mm256_add_ps(sum[i][0], sum[i][1]));
}

void score_chunk(const MlaHeads& h, const Room& room, const Slot* slots, int count) {
  for (std::size_t head = 0; head < h.heads; head += 4) {
    const float* q[4];
    float* out[4];
    float ignored[kChunk];
    for (std::size_t i = 0; i < 4; ++i) {
      const bool exists = head + i < h.heads;
      q[i] = room.q + (exists ? head + i : head) * room.width;
      out[i] = exists ? room.score + (head + i) * kChunk : ignored;
    }
    for (int p = 0; p < count; ++p) {
      float* at[4];
      for (int i = 0; i < 4; ++i) at[i] = out[i] + p;
      score_block(room, h.kv_lora + h.rope, q, slots[p], h.scale, at);
    }
  }
}

/// out = out * shrink + weights * latents for one head and V * 8 elements from d on; positions are
/// added in ascending order.
template <int V>
void add_values(const float* weight, const Slot* slots, int count, float shrink, float* out,
                std::size_t d) {
  __m256 sum[V];
  for (int v = 0; v < V; ++v)
    sum[v] = _mm256_mul_ps(_mm256_loadu_ps(out + d + v * 8), _mm256_set1_ps(shrink));
  for (int p = 0; p < count; ++p) {
    const __m256 w = _mm256_broadcast_ss(weight + p);
    for (int v = 0; v < V; ++v) {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(slots[p] + d + v * 8));
      const __m256 value = _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16));
      sum[v] = _mm256_fmadd_ps(w, value, sum[v]);
    }
  }
  for (int v = 0; v < V; ++v) _mm256_storeu_ps(out + d + v * 8, sum[v]);
}

void add_head_values(const MlaHeads& h, const float* weight, const Slot* slots, int count,
                     float shrink, float* out) {
  std::size_t d = 0;
  for (; d + 64 <= h.kv_lora; d += 64) add_values<8>(weight, slots, count, shrink, out, d);
  for (; d + 8 <= h.kv_lora; d += 8) add_values<1>(weight, slots, count, shrink, out, d);
  for (; d < h.kv_lora; ++d) {
    float sum = out[d] * shrink;
    for (int p = 0; p < count; ++p) {
      const std::uint32_t bits = static_cast<std::uint32_t>(slots[p][d]) << 16;
      float value;
      std::memcpy(&value, &bits, sizeof value);
      sum = _mm_cvtss_f32(
          _mm_fmadd_ss(_mm_set_ss(weight[p]), _mm_set_ss(value), _mm_set_ss(sum)));
    }
    out[d] = sum;
  }
}

}  // namespace

void mla_heads_avx2(const MlaHeads& h) {
  Room room;
  room.width = (h.kv_lora + h.rope + 15) / 16 * 16;
  room.score = reinterpret_cast<float*>(h.room);
  room.q = room.score + kMlaHeads * kChunk;
  part_queries(h, room);
  OnlineSoftmax softmax[kMlaHeads];
  for (std::size_t i = 0; i < h.heads; ++i)
    std::memset(h.out + i * h.out_stride, 0, h.kv_lora * sizeof(float));

  for (std::int32_t first = 0; first <= h.position; first += kChunk) {
    const int count = h.position + 1 - first < kChunk ? h.position + 1 - first : kChunk;
    Slot slots[kChunk];
    for (int i = 0; i < count; ++i) slots[i] = slot(h, first + i);
    score_chunk(h, room, slots, count);
    for (std::size_t i = 0; i < h.heads; ++i) {
      float* weight = room.score + i * kChunk;
      const float shrink = add_chunk(softmax[i], weight, count);
      add_head_values(h, weight, slots, count, shrink, h.out + i * h.out_stride);
    }
  }
  for (std::size_t i = 0; i < h.heads; ++i)
    for (std::size_t d = 0; d < h.kv_lora; ++d) h.out[i * h.out_stride + d] /= softmax[i].total;
}

}  // namespace troupe::kernels::cpu
