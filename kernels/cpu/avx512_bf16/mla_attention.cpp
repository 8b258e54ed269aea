#include <immintrin.h>

#include <cstring>

#include "kernels/cpu/mla_heads.h"
#include "kernels/cpu/mla_softmax.h"

namespace troupe::kernels::cpu {
namespace {

constexpr int kChunk = limits::kAttentionChunk;
using Slot = const std::uint16_t*;  // [kv_lora + rope] bf16

struct Room {
  std::uint16_t* q;  // [heads, width] bf16: latent, rotary, zeros
  std::size_t width;
  float* score;  // [heads, kChunk]
};

__mmask16 first_lanes(std::size_t n) {
  return n >= 16 ? __mmask16{0xffff} : static_cast<__mmask16>((1u << n) - 1);
}

std::uint16_t round_one(float x) {
  const __m128bh half = _mm_cvtneps_pbh(_mm_set_ss(x));
  return static_cast<std::uint16_t>(_mm_cvtsi128_si32(reinterpret_cast<__m128i>(half)));
}

void round_queries(const MlaHeads& h, const Room& room) {
  for (std::size_t i = 0; i < h.heads; ++i) {
    std::uint16_t* q = room.q + i * room.width;
    for (std::size_t d = 0; d < h.kv_lora; ++d) q[d] = round_one(h.latent[i * h.latent_stride + d]);
    q += h.kv_lora;
    for (std::size_t d = 0; d < h.rope; ++d) q[d] = round_one(h.rotary[i * h.rotary_stride + d]);
    for (std::size_t d = h.kv_lora + h.rope; d < room.width; ++d) *(q + d - h.kv_lora) = 0;
  }
}

void find_slots(const MlaHeads& h, std::int32_t first, int count, Slot* slots) {
  for (int i = 0; i < kChunk; ++i) {
    // Positions that do not exist yet read the first one's slot and are ignored later.
    const auto p = static_cast<std::size_t>(i < count ? first + i : first);
    const auto block = static_cast<std::size_t>(h.table[p / h.block_size]);
    slots[i] = reinterpret_cast<Slot>(static_cast<const std::byte*>(h.cache) +
                                      (block * h.block_size + p % h.block_size) * h.slot_bytes);
  }
}

/// Sums of four registers, every one by the same tree over its lanes.
__m128 sum_lanes(const __m512* v) {
  const __m512 a = _mm512_add_ps(_mm512_unpacklo_ps(v[0], v[1]), _mm512_unpackhi_ps(v[0], v[1]));
  const __m512 b = _mm512_add_ps(_mm512_unpacklo_ps(v[2], v[3]), _mm512_unpackhi_ps(v[2], v[3]));
  const __m512 c = _mm512_add_ps(_mm512_shuffle_ps(a, b, 0x44), _mm512_shuffle_ps(a, b, 0xee));
  const __m256 d = _mm256_add_ps(_mm512_castps512_ps256(c), _mm512_extractf32x8_ps(c, 1));
  return _mm_add_ps(_mm256_castps256_ps128(d), _mm256_extractf128_ps(d, 1));
}

/// Scores of four heads at four positions: 16 running sums over pairs of elements.
void score_block(const Room& room, std::size_t n, const std::uint16_t* const* q, const Slot* slots,
                 float scale, float* const* out) {
  __m512 sum[4][4];
  for (auto& row : sum)
    for (auto& s : row) s = _mm512_setzero_ps();
  for (std::size_t d = 0; d < room.width; d += 32) {
    const std::size_t left = n - d;
    const __mmask32 mask = left >= 32 ? ~__mmask32{0} : (__mmask32{1} << left) - 1;
    __m512bh k[4];
    for (int p = 0; p < 4; ++p)
      k[p] = reinterpret_cast<__m512bh>(_mm512_maskz_loadu_epi16(mask, slots[p] + d));
    for (int i = 0; i < 4; ++i) {
      const auto query = reinterpret_cast<__m512bh>(_mm512_load_si512(q[i] + d));
      for (int p = 0; p < 4; ++p) sum[i][p] = _mm512_dpbf16_ps(sum[i][p], query, k[p]);
    }
  }
  for (int i = 0; i < 4; ++i)
    _mm_storeu_ps(out[i], _mm_mul_ps(sum_lanes(sum[i]), _mm_set1_ps(scale)));
}

void score_chunk(const MlaHeads& h, const Room& room, const Slot* slots, int count) {
  for (std::size_t head = 0; head < h.heads; head += 4) {
    const std::uint16_t* q[4];
    float* out[4];
    float ignored[kChunk];
    for (std::size_t i = 0; i < 4; ++i) {
      const bool exists = head + i < h.heads;
      q[i] = room.q + (exists ? head + i : head) * room.width;
      out[i] = exists ? room.score + (head + i) * kChunk : ignored;
    }
    for (int p = 0; p < count; p += 4) {
      float* at[4];
      for (int i = 0; i < 4; ++i) at[i] = out[i] + p;
      score_block(room, h.kv_lora + h.rope, q, slots + p, h.scale, at);
    }
  }
}

/// out = out * shrink + weights * latents for H heads and V * 16 elements from d on; positions are
/// added in ascending order.
template <int H, int V>
void add_values(const MlaHeads& h, const Room& room, const Slot* slots, int count,
                const float* shrink, std::size_t head, std::size_t d) {
  const __mmask16 mask = V == 1 ? first_lanes(h.kv_lora - d) : __mmask16{0xffff};
  __m512 sum[H][V];
  float* out[H];
  const float* weight[H];
  for (int i = 0; i < H; ++i) {
    const std::size_t at = head + static_cast<std::size_t>(i);
    out[i] = h.out + at * h.out_stride + d;
    weight[i] = room.score + at * kChunk;
    for (int v = 0; v < V; ++v)
      sum[i][v] = _mm512_mul_ps(_mm512_maskz_loadu_ps(mask, out[i] + v * 16),
                                _mm512_set1_ps(shrink[at]));
  }
  for (int p = 0; p < count; ++p) {
    __m512 value[V];
    for (int v = 0; v < V; ++v) {
      const __m256i half = _mm256_maskz_loadu_epi16(mask, slots[p] + d + v * 16);
      value[v] = _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16));
    }
    for (int i = 0; i < H; ++i) {
      const __m512 w = _mm512_set1_ps(weight[i][p]);
      for (int v = 0; v < V; ++v) sum[i][v] = _mm512_fmadd_ps(w, value[v], sum[i][v]);
    }
  }
  for (int i = 0; i < H; ++i)
    for (int v = 0; v < V; ++v) _mm512_mask_storeu_ps(out[i] + v * 16, mask, sum[i][v]);
}

template <int H>
void add_head_values(const MlaHeads& h, const Room& room, const Slot* slots, int count,
                     const float* shrink, std::size_t head) {
  std::size_t d = 0;
  for (; d + 64 <= h.kv_lora; d += 64) add_values<H, 4>(h, room, slots, count, shrink, head, d);
  for (; d < h.kv_lora; d += 16) add_values<H, 1>(h, room, slots, count, shrink, head, d);
}

}  // namespace

void mla_heads_avx512_bf16(const MlaHeads& h) {
  Room room;
  room.width = (h.kv_lora + h.rope + 31) / 32 * 32;
  room.score = reinterpret_cast<float*>(h.room);
  room.q = reinterpret_cast<std::uint16_t*>(h.room + kMlaHeads * kChunk * sizeof(float));
  round_queries(h, room);
  OnlineSoftmax softmax[kMlaHeads];
  for (std::size_t i = 0; i < h.heads; ++i)
    std::memset(h.out + i * h.out_stride, 0, h.kv_lora * sizeof(float));

  for (std::int32_t first = 0; first <= h.position; first += kChunk) {
    const int count = h.position + 1 - first < kChunk ? h.position + 1 - first : kChunk;
    Slot slots[kChunk];
    find_slots(h, first, count, slots);
    score_chunk(h, room, slots, count);
    float shrink[kMlaHeads];
    for (std::size_t i = 0; i < h.heads; ++i)
      shrink[i] = add_chunk(softmax[i], room.score + i * kChunk, count);
    std::size_t head = 0;
    for (; head + 4 <= h.heads; head += 4)
      add_head_values<4>(h, room, slots, count, shrink, head);
    for (; head < h.heads; ++head) add_head_values<1>(h, room, slots, count, shrink, head);
  }
  for (std::size_t i = 0; i < h.heads; ++i)
    for (std::size_t d = 0; d < h.kv_lora; ++d) h.out[i * h.out_stride + d] /= softmax[i].total;
}

}  // namespace troupe::kernels::cpu
