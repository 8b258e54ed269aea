#include "kernels/cuda/attention_parts.h"
#include "kernels/cuda/ops.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A CTA for a query and a part of its context: a thread a position of the tile, then a thread a
/// number of the result, which it keeps in memory. Bytes: keys and values of the part again for
/// each query, a number at a time, and 16 a tile and number of the result. Operations, a position:
/// an fma a number of key and value. Bound by the latency of its loads; it is there to be compared
/// with.
struct PlainPart {
  static constexpr int kThreads = kTile;
  static constexpr std::size_t kSharedBytes = (2 * kTile + 2) * sizeof(float);
  static constexpr bool kMeets = true;

  AttentionCall call;
  AttentionWork work;
  float* tiles;  ///< room: [pieces, v_dim]

  DEVICE void operator()(Cta& cta) const {
    const AttentionPiece piece = work.pieces[cta.block_x()];
    const AttentionUnit& u = work.units[piece.unit];
    const std::int64_t row = u.row_of(call, 0);
    const Shared<float> scores = cta.shared<float>(0, kTile);
    const Shared<float> weights = cta.shared<float>(kTile * sizeof(float), kTile);
    const Shared<float> of_tile = cta.shared<float>(2 * kTile * sizeof(float), 2);
    float* out = work.partials.out + piece.partial * call.out.dim;
    float* tile = tiles + cta.block_x() * call.out.dim;
    SoftmaxFold fold;
    for (std::int32_t first = piece.first; first < piece.first + kPart; first += kTile) {
      const std::int32_t begin = first > u.from ? first : u.from;
      const std::int32_t end = first + kTile < u.to ? first + kTile : u.to;
      if (begin >= end) continue;
      const std::int32_t p = first + cta.thread();
      const bool seen = p >= begin && p < end;
      if (seen) scores[cta.thread()] = score(u, row, p);
      cta.sync();
      if (cta.thread() == 0) {
        float most = scores[begin - first];
        for (std::int32_t i = begin - first + 1; i < end - first; ++i) {
          const float one = scores[i];
          most = most > one ? most : one;
        }
        of_tile[0] = most;
      }
      cta.sync();
      weights[cta.thread()] = seen ? bf(exp_f32(scores[cta.thread()] - of_tile[0])) : 0.0f;
      cta.sync();
      if (cta.thread() == 0) of_tile[1] = product(weights, [](int) { return 1.0f; });
      for (std::int64_t d = cta.thread(); d < call.out.dim; d += kThreads)
        tile[d] = product(weights, [&](int i) { return value(u, row, first + i, begin, end, d); });
      cta.sync();
      const bool fresh = fold.fresh;
      const SoftmaxFold::Factors f = fold.add(of_tile[0], of_tile[1]);
      for (std::int64_t d = cta.thread(); d < call.out.dim; d += kThreads)
        out[d] = fresh ? tile[d] : fma_f32(tile[d], f.next, out[d] * f.before);
      cta.sync();
    }
    if (cta.thread() != 0) return;
    work.partials.max[piece.partial] = fold.max;
    work.partials.sum[piece.partial] = fold.sum;
  }

  DEVICE float score(const AttentionUnit& u, std::int64_t row, std::int32_t p) const {
    const float* q = head_at<const float>(call.q, row, u.head_of(call, 0));
    const std::byte* k = kv_row(call.keys, call.where.tables[row], p, u.kv_head * call.q.dim);
    float sum = 0;
    for (std::int64_t block = 0; block < call.q.dim; block += 32) {
      float even = 0, odd = 0;
      for (std::int64_t i = block; i < block + 32 && i < call.q.dim; i += 2) {
        even = fma_f32(bf(q[i]), kv_number(k, call.keys.dtype, i), even);
        if (i + 1 < call.q.dim)
          odd = fma_f32(bf(q[i + 1]), kv_number(k, call.keys.dtype, i + 1), odd);
      }
      sum = sum + (even + odd);
    }
    return call.scale * sum;
  }

  DEVICE float value(const AttentionUnit& u, std::int64_t row, std::int32_t p, std::int32_t begin,
                     std::int32_t end, std::int64_t d) const {
    if (p < begin || p >= end) return 0;
    return kv_number(kv_row(call.values, call.where.tables[row], p, u.kv_head * call.out.dim),
                     call.values.dtype, d);
  }

  /// P of the tile's weights with what other(i) gives.
  template <class Other>
  DEVICE float product(const Shared<float>& weights, const Other& other) const {
    float sum = 0;
    for (int block = 0; block < kTile; block += 32) {
      float even = 0, odd = 0;
      for (int i = block; i < block + 32; i += 2) {
        even = fma_f32(weights[i], other(i), even);
        odd = fma_f32(weights[i + 1], other(i + 1), odd);
      }
      sum = sum + (even + odd);
    }
    return sum;
  }
};

void plain_parts(Stream& stream, const AttentionCall& call, const AttentionWork& work) {
  float* tiles =
      stream.scratch().take<float>(static_cast<std::size_t>(work.piece_count * call.out.dim));
  launch(stream, {work.piece_count}, PlainPart{call, work, tiles});
}

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::plain_attention(Stream& stream, const AttentionInputs& in,
                                        const PagedRows& where, const Tensor& q,
                                        const Tensor& out) {
  attention_by({plain_parts, 1, false}, stream, in, where, q, out);
}

}  // namespace troupe::kernels
