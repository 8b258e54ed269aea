#include <cstring>

#include "kernels/cpu/attention_tile.h"
#include "kernels/scalar_math.h"

namespace troupe::kernels::cpu {
namespace {

const float* floats(const std::byte* row) { return reinterpret_cast<const float*>(row); }

void tile(const TileWork& w) {
  for (std::int64_t i = 0; i < w.queries; ++i) {
    const std::int32_t first = w.from[i] > w.first ? w.from[i] - w.first : 0;
    const std::int32_t last = w.to[i] - w.first < kTile ? w.to[i] - w.first : kTile;
    const float* q = floats(w.q) + i * w.k_dim;
    float* weights = w.scores;
    float highest = -__builtin_inff(), total = 0;
    for (std::int32_t p = first; p < last; ++p) {
      const float* key = floats(w.keys[p]);
      float score = 0;
      for (std::int64_t k = 0; k < w.k_dim; ++k) score += q[k] * key[k];
      weights[p] = score * w.scale;
      highest = highest > weights[p] ? highest : weights[p];
    }
    float* out = w.to_write.out + i * w.v_dim;
    std::memset(out, 0, static_cast<std::size_t>(w.v_dim) * 4);
    for (std::int32_t p = first; p < last; ++p) {
      const float weight = exp_f32(weights[p] - highest);
      const float* value = floats(w.values[p]);
      for (std::int64_t d = 0; d < w.v_dim; ++d) out[d] += weight * value[d];
      total += weight;
    }
    w.to_write.max[i] = highest;
    w.to_write.sum[i] = total;
  }
}

void fold(const PartialSoftmax& into, const PartialSoftmax& next, std::int64_t queries,
          std::int64_t v_dim) {
  for (std::int64_t i = 0; i < queries; ++i) {
    if (next.sum[i] == 0) continue;
    const bool fresh = into.sum[i] == 0;
    const float a = into.max[i], b = next.max[i], top = fresh || !(a > b) ? b : a;
    const float x = fresh ? 1.0f : exp_f32(b - top), y = fresh ? 0.0f : exp_f32(a - top);
    into.max[i] = top;
    into.sum[i] = fresh ? next.sum[i] : next.sum[i] * x + into.sum[i] * y;
    float* out = into.out + i * v_dim;
    const float* add = next.out == nullptr ? nullptr : next.out + i * v_dim;
    for (std::int64_t d = 0; d < v_dim; ++d) {
      const float value = add == nullptr ? 0.0f : add[d];
      out[d] = fresh ? value : value * x + out[d] * y;
    }
  }
}

std::int64_t query_bytes(std::int64_t k_dim) { return k_dim * 4; }

void prepare(const float* q, std::int64_t k_dim, std::byte* prepared) {
  std::memcpy(prepared, q, static_cast<std::size_t>(k_dim) * 4);
}

}  // namespace

const AttentionKernel kAttentionReference = {query_bytes, prepare, tile, fold};

}  // namespace troupe::kernels::cpu
