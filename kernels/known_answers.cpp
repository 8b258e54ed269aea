#include "kernels/known_answers.h"

#include <cassert>
#include <cstring>
#include <numeric>
#include <utility>

#include "kernels/combine.h"
#include "kernels/embedding.h"
#include "kernels/expert_ffn.h"
#include "kernels/linear.h"
#include "kernels/mla_attention.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"
#include "kernels/silu_mul.h"
#include "kernels/softmax_logprob.h"
#include "runtime/xxh3.h"

namespace troupe::kernels {
namespace {

using Answers = std::uint64_t[kNumericsCount];

/// By question: one digest a family, in the order of Numerics.
constexpr Answers kAnswers[] = {
#include "kernels/known_answers.inc"
};

template <class T>
std::uint64_t digest(const std::vector<T>& v, std::uint64_t before = 0) {
  return xxh3_64(v.data(), v.size() * sizeof(T), before);
}

/// The shapes of questions are possible, and small.
PackedMatrix pack(Numerics numerics, WeightType type, const std::vector<float>& w, std::int64_t n,
                  std::int64_t k, const PackOptions& options = {}) {
  const std::vector<std::byte> bytes = stored(type, w);
  auto packed = pack_matrix(numerics, dense_source(bytes.data(), type, n, k), options);
  assert(packed.ok());
  return std::move(packed).value();
}

struct Asker {
  const Context& ctx;
  Integers in;

  std::uint64_t operator()(const LinearQuestion& q) {
    const auto k = static_cast<std::size_t>(q.k), n = static_cast<std::size_t>(q.n);
    const std::vector<float> x = in.values(q.rows * q.heads * k);
    std::vector<PackedMatrix> w;
    for (std::size_t h = 0; h < q.heads; ++h)
      w.push_back(pack(ctx.numerics, q.type, in.weights(q.type, n * k), q.n, q.k, q.options));
    std::vector<float> y(q.rows * q.heads * n);
    if (q.heads == 1)
      linear(ctx, w[0], const_rows(x.data(), q.rows, k), make_rows(y.data(), q.rows, n));
    else
      linear_heads(ctx, w, const_heads(x.data(), q.rows, q.heads, k),
                   make_heads(y.data(), q.rows, q.heads, n));
    return digest(y);
  }

  std::uint64_t operator()(const FfnQuestion& q) {
    const auto hidden = static_cast<std::size_t>(q.hidden);
    const auto size = hidden * static_cast<std::size_t>(q.inner);
    const std::vector<float> x = in.values(q.rows * hidden);
    std::vector<std::int32_t> rows(q.rows);
    std::iota(rows.begin(), rows.end(), 0);
    std::vector<ExpertWeights> weights(q.experts);
    std::vector<ExpertCall> calls;
    std::size_t outputs = 0;
    for (std::size_t e = 0; e < q.experts; ++e) {
      ExpertWeights& w = weights[e];
      w.gate = pack(ctx.numerics, q.type, in.weights(q.type, size), q.inner, q.hidden);
      w.up = pack(ctx.numerics, q.type, in.weights(q.type, size), q.inner, q.hidden);
      w.down = pack(ctx.numerics, q.type, in.weights(q.type, size), q.hidden, q.inner);
      calls.push_back({&w, std::span(rows).subspan(e)});
      outputs += q.rows - e;
    }
    std::vector<float> y(outputs * hidden);
    expert_ffn(ctx, calls, const_rows(x.data(), q.rows, hidden),
               make_rows(y.data(), outputs, hidden));
    return digest(y);
  }

  std::uint64_t operator()(const AttentionQuestion& q) {
    const auto count = static_cast<std::size_t>(q.last) + 1;
    const std::vector<float> latent = in.values(count * q.kv_lora);
    const std::vector<float> rotary = in.values(count * q.rope);
    const std::vector<float> q_latent = in.values(q.rows * q.heads * q.kv_lora);
    const std::vector<float> q_rotary = in.values(q.rows * q.heads * q.rope);

    const auto size = static_cast<std::size_t>(q.block_size);
    const std::size_t blocks = (count + size - 1) / size;
    std::vector<std::int32_t> table(blocks), positions(count);
    for (std::size_t i = 0; i < blocks; ++i)
      table[i] = static_cast<std::int32_t>(blocks - 1 - i);
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<const std::int32_t*> tables(count, table.data());
    LatentCache cache{nullptr, wire_type(ctx.numerics), size, q.kv_lora, q.rope};
    std::vector<std::byte> pool(blocks * size * cache.slot_bytes());
    cache.base = pool.data();
    store_latent(ctx, cache, {tables.data(), positions.data()},
                 const_rows(latent.data(), count, q.kv_lora),
                 const_rows(rotary.data(), count, q.rope));

    for (std::size_t r = 0; r < q.rows; ++r) positions[r] = q.last - static_cast<std::int32_t>(r);
    std::vector<float> y(q.rows * q.heads * q.kv_lora);
    mla_attention(ctx, cache, {tables.data(), positions.data()},
                  {const_heads(q_latent.data(), q.rows, q.heads, q.kv_lora),
                   const_heads(q_rotary.data(), q.rows, q.heads, q.rope),
                   AttentionQuestion::kScale},
                  make_heads(y.data(), q.rows, q.heads, q.kv_lora));
    return digest(y);
  }

  std::uint64_t operator()(const GateQuestion& q) {
    const auto experts = static_cast<std::size_t>(q.config.experts);
    const auto chosen = q.rows * static_cast<std::size_t>(q.config.top_k);
    const std::vector<float> logits = in.values(q.rows * experts);
    const std::vector<float> bias = in.values(experts);
    std::vector<std::int32_t> ids(chosen);
    std::vector<float> weights(chosen);
    moe_gate(ctx, q.config, const_rows(logits.data(), q.rows, experts), bias.data(), ids.data(),
             weights.data());
    return digest(weights, digest(ids));
  }

  std::uint64_t operator()(const RowsQuestion& q) {
    switch (q.op) {
      case RowOp::kRopeInterleaved: return ask_rope(q, RopePairs::kInterleaved);
      case RowOp::kRopeHalves: return ask_rope(q, RopePairs::kHalves);
      case RowOp::kEmbeddingBf16: return ask_embedding(q, WeightType::kBf16);
      case RowOp::kEmbeddingF32: return ask_embedding(q, WeightType::kF32);
      case RowOp::kCombine: return ask_combine(q);
      case RowOp::kLogSoftmax: return ask_softmax(q);
      default: break;
    }
    std::vector<float> a = in.values(q.rows * q.cols);
    std::vector<float> b = in.values(q.rows * q.cols);
    const Rows x = make_rows(a.data(), q.rows, q.cols), y = make_rows(b.data(), q.rows, q.cols);
    if (q.op == RowOp::kNorm) rms_norm(ctx, x, b.data(), RowsQuestion::kEpsilon, x);
    if (q.op == RowOp::kSilu) silu_mul(ctx, x, y, x);
    if (q.op == RowOp::kResidual) residual_add(ctx, y, x);
    if (q.op == RowOp::kToWire) {
      std::vector<std::byte> wire(a.size() * wire_size(WireType::kBf16));
      to_wire(ctx, WireType::kBf16, x, wire.data());
      from_wire(ctx, WireType::kBf16, wire.data(), x);
      round_to_wire(ctx, WireType::kBf16, y);
      return digest(a, digest(b));
    }
    return digest(a);
  }

  std::uint64_t ask_rope(const RowsQuestion& q, RopePairs pairs) {
    const std::size_t half = q.cols / 2;
    const std::vector<float> cos = in.values(q.rows * half), sin = in.values(q.rows * half);
    std::vector<float> x = in.values(q.rows * 2 * q.cols);
    std::vector<std::int32_t> positions(q.rows);
    std::iota(positions.begin(), positions.end(), 0);
    rope(ctx, {cos.data(), sin.data(), q.rows, half}, pairs, positions.data(),
         make_heads(x.data(), q.rows, 2, q.cols));
    return digest(x);
  }

  std::uint64_t ask_embedding(const RowsQuestion& q, WeightType type) {
    const std::vector<std::byte> table =
        stored(type, in.weights(type, (q.rows + 2) * q.cols));
    std::vector<std::int32_t> ids(q.rows);
    std::iota(ids.begin(), ids.end(), 1);
    std::vector<float> y(q.rows * q.cols);
    embedding(ctx,
              dense_source(table.data(), type, static_cast<std::int64_t>(q.rows + 2),
                           static_cast<std::int64_t>(q.cols)),
              ids.data(), make_rows(y.data(), q.rows, q.cols));
    return digest(y);
  }

  std::uint64_t ask_combine(const RowsQuestion& q) {
    const WireType wire = wire_type(ctx.numerics);
    const auto type = wire == WireType::kF32 ? WeightType::kF32 : WeightType::kBf16;
    constexpr std::size_t kOutputs = RowsQuestion::kOutputs;
    std::vector<float> y = in.values(q.rows * q.cols);
    const std::vector<std::byte> outputs =
        stored(type, in.weights(type, q.rows * kOutputs * q.cols));
    std::vector<ExpertOutput> list(q.rows * kOutputs);
    for (std::size_t i = 0; i < list.size(); ++i)
      list[i] = {outputs.data() + i * q.cols * wire_size(wire), in.value()};
    combine(ctx, wire, list, kOutputs, make_rows(y.data(), q.rows, q.cols));
    return digest(y);
  }

  std::uint64_t ask_softmax(const RowsQuestion& q) {
    const std::vector<float> x = in.values(q.rows * q.cols);
    std::vector<double> found;
    for (std::size_t r = 0; r < q.rows; ++r) {
      const LogSoftmax s = log_softmax(x.data() + r * q.cols, q.cols);
      found.insert(found.end(), {static_cast<double>(s.max), s.sum, s.log_sum});
    }
    return digest(found);
  }
};

}  // namespace

std::uint64_t ask(const Context& context, std::size_t question) {
  return std::visit(Asker{context, inputs_of(question)}, known_questions()[question]);
}

bool compared_here(Numerics numerics) {
  __builtin_cpu_init();
  return numerics < Numerics::kAvx512Bf16 ||
         (numerics == Numerics::kAvx512Bf16 && __builtin_cpu_is("amd"));
}

std::uint64_t known_answer(Numerics numerics, std::size_t question) {
  assert(std::size(kAnswers) == known_questions().size());
  return kAnswers[question][static_cast<std::size_t>(numerics)];
}

}  // namespace troupe::kernels
