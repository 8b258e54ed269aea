#include "kernels/known_answers.h"

#include <algorithm>
#include <cassert>
#include <iterator>
#include <memory>
#include <numeric>
#include <utility>

#include "kernels/attention.h"
#include "kernels/combine.h"
#include "kernels/embedding.h"
#include "kernels/gated_mlp.h"
#include "kernels/join.h"
#include "kernels/linear.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"
#include "kernels/softmax_logprob.h"
#include "runtime/xxh3.h"

namespace troupe::kernels {
namespace {

/// By question, in the order of exact_numerics().
using Answers = std::uint64_t[5];
constexpr Answers kAnswers[] = {
#include "kernels/known_answers.inc"
};

template <class T>
std::uint64_t digest(const std::vector<T>& v, std::uint64_t before = 0) {
  return xxh3_64(v.data(), v.size() * sizeof(T), before);
}

struct Asker {
  Stream& stream;
  Integers in;
  std::vector<std::shared_ptr<std::byte>> memory = {};  ///< of all that ops read and write

  std::byte* room(std::size_t bytes) {
    memory.push_back(stream.memory(bytes));
    return memory.back().get();
  }
  /// A copy where ops reach it.
  template <class T>
  T* there(const std::vector<T>& v) {
    std::byte* const to = room(v.size() * sizeof(T));
    stream.write(to, v.data(), v.size() * sizeof(T));
    return reinterpret_cast<T*>(to);
  }
  Tensor matrix(const std::vector<float>& v, std::int64_t rows) {
    return stream.device_tensor(there(v), DType::kF32, rows,
                                static_cast<std::int64_t>(v.size()) / rows);
  }
  Tensor room(std::int64_t rows, std::int64_t cols, DType dtype = DType::kF32) {
    const auto bytes = static_cast<std::size_t>(rows * cols) * dtype_size(dtype);
    return stream.device_tensor(room(bytes), dtype, rows, cols);
  }
  std::uint64_t digest_of(const void* from, std::size_t bytes, std::uint64_t before = 0) {
    return xxh3_64(stream.read(from, bytes), bytes, before);
  }
  std::uint64_t digest_of(const Tensor& dense) {
    return digest_of(dense.data,
                     static_cast<std::size_t>(dense.rows * dense.cols()) * dtype_size(dense.dtype));
  }
  Weight place(Weight w) const {
    if (stream.accelerator() == nullptr) return w;
    return w.placed(stream.place(w.memory()));
  }

  /// The shapes of questions are possible, and small.
  Weight pack(const StoredQuestion& q, const PackOptions& options = {}, std::int64_t groups = 1) {
    std::vector<StoredBytes> stored;
    for (std::int64_t g = 0; g < groups; ++g) stored.emplace_back(q, in);
    auto packer = WeightPacker::begin(stream.numerics(), stored[0].matrix(), options, groups);
    assert(packer.ok());
    for (const StoredBytes& s : stored) packer->add(s.codes.data(), q.n);
    return place(packer->take());
  }
  Weight vector(const std::vector<float>& values) const {
    const auto n = static_cast<std::int64_t>(values.size());
    auto packer = WeightPacker::begin(stream.numerics(), {Codes::kF32, 1, n, {}}, {1, false, true});
    assert(packer.ok());
    packer->add(reinterpret_cast<const std::byte*>(values.data()), 1);
    return place(packer->take());
  }
  /// x as the wire type holds it.
  const std::byte* wire(const std::vector<float>& x) {
    const Tensor from = matrix(x, 1);
    const Tensor to = room(1, from.dim, wire_type(stream.numerics()));
    to_wire(stream, from, to);
    return static_cast<const std::byte*>(to.data);
  }
  std::size_t wire_bytes(std::int64_t numbers) const {
    return static_cast<std::size_t>(numbers) * dtype_size(wire_type(stream.numerics()));
  }

  std::uint64_t operator()(const LinearQuestion& q) {
    const std::vector<float> x = in.values(q.rows * q.groups * q.weight.k);
    const Weight w = pack(q.weight, q.options, q.groups);
    const std::vector<float> bias = in.values(q.bias ? q.groups * q.weight.n : 0);
    const Tensor y = room(q.rows, q.groups * q.weight.n);
    Stream::Scope scope(stream);
    const Tensor rows = matrix(x, q.rows).split(q.groups);
    linear(stream, w, prepare(stream, rows, w), y.split(q.groups), q.bias ? there(bias) : nullptr);
    return digest_of(y);
  }

  std::uint64_t operator()(const MlpQuestion& q) {
    const std::int64_t hidden = q.weight.k;
    const std::byte* const x = wire(in.values(q.rows * hidden));
    StoredQuestion down = q.weight;
    std::swap(down.n, down.k);
    std::vector<GatedMlp> experts(static_cast<std::size_t>(q.experts));
    std::vector<ExpertCall> calls;
    std::vector<const std::byte*> rows;
    const std::size_t row_bytes = wire_bytes(hidden);
    for (std::int64_t e = 0; e < q.experts; ++e) {
      GatedMlp& mlp = experts[static_cast<std::size_t>(e)];
      mlp.gate = pack(q.weight);
      mlp.up = pack(q.weight);
      mlp.down = pack(down);
      calls.push_back(
          {&mlp, static_cast<std::int32_t>(rows.size()), static_cast<std::int32_t>(q.rows - e)});
      for (std::int64_t r = e; r < q.rows; ++r)
        rows.push_back(x + static_cast<std::size_t>(r) * row_bytes);
    }
    std::byte* const y = room(rows.size() * row_bytes);
    std::vector<std::byte*> outputs;
    for (std::size_t i = 0; i < rows.size(); ++i) outputs.push_back(y + i * row_bytes);
    expert_mlp(stream, calls, q.act, rows.data(), outputs.data());
    return digest_of(y, rows.size() * row_bytes);
  }

  std::uint64_t operator()(const AttentionQuestion& q) {
    const std::int64_t count = q.last + 1;
    const std::vector<float> keys = in.values(count * q.kv_heads * q.k_dim);
    const std::vector<float> values = in.values(q.shared ? 0 : count * q.kv_heads * q.v_dim);
    const std::vector<float> x = in.values(q.rows * q.heads * q.k_dim);
    const std::vector<float> sinks = in.values(q.heads);

    const std::int64_t blocks = (count + q.block_size - 1) / q.block_size;
    std::vector<std::int32_t> table, positions(static_cast<std::size_t>(count));
    for (std::int64_t b = blocks; b-- > 0;) table.push_back(static_cast<std::int32_t>(b));
    std::iota(positions.begin(), positions.end(), 0);
    const std::vector<const std::int32_t*> tables(positions.size(), table.data());
    const DType type = kv_type(stream.numerics());
    const auto pool = [&](std::int64_t row) -> KvPool {
      return {room(static_cast<std::size_t>(blocks * q.block_size * row) * dtype_size(type)), type,
              q.block_size, row};
    };
    AttentionInputs inputs;
    inputs.keys = pool(q.kv_heads * q.k_dim);
    inputs.values = q.shared ? inputs.keys : pool(q.kv_heads * q.v_dim);
    const PagedRows all{tables.data(), positions.data()};
    store_kv(stream, inputs.keys, all, matrix(keys, count));
    if (!q.shared) store_kv(stream, inputs.values, all, matrix(values, count));

    inputs.kv_heads = q.kv_heads;
    inputs.scale = AttentionQuestion::kScale;
    inputs.window = q.window;
    inputs.sinks = q.sinks ? there(sinks) : nullptr;
    for (std::int32_t r = 0; r < q.rows; ++r) positions[static_cast<std::size_t>(r)] = q.last - r;
    const Tensor y = room(q.rows, q.heads * q.v_dim);
    attention(stream, inputs, all, matrix(x, q.rows).split(q.heads), y.split(q.heads));
    return digest_of(y);
  }

  std::uint64_t operator()(const GateQuestion& q) {
    const auto chosen = static_cast<std::size_t>(q.rows * q.config.top_k);
    const std::vector<float> logits = in.values(q.rows * q.config.experts);
    const std::vector<float> bias = in.values(q.config.experts);
    auto* const ids = reinterpret_cast<std::int32_t*>(room(chosen * sizeof(std::int32_t)));
    auto* const weights = reinterpret_cast<float*>(room(chosen * sizeof(float)));
    moe_gate(stream, q.config, matrix(logits, q.rows), there(bias), ids, weights);
    return digest_of(weights, chosen * sizeof(float),
                     digest_of(ids, chosen * sizeof(std::int32_t)));
  }

  std::uint64_t operator()(const RowsQuestion& q) {
    switch (q.op) {
      case RowOp::kRopeInterleaved:
        return ask_rope(q, RopePairs::kInterleaved);
      case RowOp::kRopeHalves:
        return ask_rope(q, RopePairs::kHalves);
      case RowOp::kEmbedding:
        return ask_embedding(q);
      case RowOp::kCombine:
        return ask_combine(q);
      case RowOp::kLogSoftmax:
        return ask_softmax(q);
      case RowOp::kJoin:
        return ask_join(q);
      default:
        break;
    }
    std::vector<float> a = in.values(q.rows * q.cols), b = in.values(q.rows * q.cols);
    const Tensor x = matrix(a, q.rows), y = matrix(b, q.rows);
    if (q.op == RowOp::kNorm) {
      b.resize(static_cast<std::size_t>(q.cols));
      rms_norm(stream, x, vector(b), RowsQuestion::kEpsilon, x);
    }
    if (q.op == RowOp::kSilu) silu_mul(stream, {}, x, y, x);
    if (q.op == RowOp::kClampedSwiglu)
      silu_mul(stream, {GatedAct::Kind::kClampedSwiglu, RowsQuestion::kLimit}, x, y, x);
    if (q.op == RowOp::kResidual) residual_add(stream, y, x);
    if (q.op == RowOp::kToWire) {
      const Tensor there = room(q.rows, q.cols, DType::kBf16);
      to_wire(stream, x, there);
      from_wire(stream, there, x);
    }
    return digest_of(x);
  }

  std::uint64_t operator()(const SampleQuestion& q) {
    const SampleInputs inputs(q, in);
    const std::size_t count = inputs.calls.size();
    const auto top = static_cast<std::size_t>(q.call.top);
    SampleResults results;
    results.of = reinterpret_cast<SampleResult*>(room(count * sizeof(SampleResult)));
    results.top = reinterpret_cast<TokenLogprob*>(room(count * top * sizeof(TokenLogprob)));
    results.top_columns = q.call.top;
    sample(stream, matrix(inputs.logits, q.rows), inputs.calls, {inputs.adjusted, inputs.masks},
           results);
    return digest_of(results.top, count * top * sizeof(TokenLogprob),
                     digest_of(results.of, count * sizeof(SampleResult)));
  }

  std::uint64_t ask_join(const RowsQuestion& q) {
    std::vector<float> parts[4];
    for (auto& part : parts) part = in.values(q.rows * q.cols);
    const std::vector<float> bias = in.values(q.cols);
    const float* const each[] = {there(parts[0]), there(parts[1]), there(parts[2]),
                                 there(parts[3])};
    const Tensor y = room(q.rows, q.cols);
    join(stream, each, there(bias), y);
    return digest_of(y);
  }

  std::uint64_t ask_rope(const RowsQuestion& q, RopePairs pairs) {
    const std::int64_t half = q.cols / 2;
    const std::vector<float> cos = in.values(q.rows * half), sin = in.values(q.rows * half);
    const Tensor x = matrix(in.values(q.rows * 2 * q.cols), q.rows);
    std::vector<std::int32_t> positions(static_cast<std::size_t>(q.rows));
    std::iota(positions.begin(), positions.end(), 0);
    rope(stream, {there(cos), there(sin), q.rows, half}, pairs, positions.data(), x.split(2));
    return digest_of(x);
  }

  std::uint64_t ask_embedding(const RowsQuestion& q) {
    const Weight table = pack({Codes::kBf16, q.rows + 2, q.cols}, {1, false, true});
    std::vector<std::int32_t> ids(static_cast<std::size_t>(q.rows));
    std::iota(ids.begin(), ids.end(), 1);
    const Tensor y = room(q.rows, q.cols);
    embedding(stream, table, ids.data(), y);
    return digest_of(y);
  }

  std::uint64_t ask_combine(const RowsQuestion& q) {
    const Tensor y = matrix(in.values(q.rows * q.cols), q.rows);
    const std::byte* const outputs = wire(in.values(q.rows * q.kOutputs * q.cols));
    std::vector<WeightedOutput> list(static_cast<std::size_t>(q.rows * q.kOutputs));
    const std::size_t row_bytes = wire_bytes(q.cols);
    for (std::size_t i = 0; i < list.size(); ++i) list[i] = {outputs + i * row_bytes, in.value()};
    combine(stream, list, static_cast<std::size_t>(q.kOutputs), y);
    return digest_of(y);
  }

  std::uint64_t ask_softmax(const RowsQuestion& q) {
    const std::vector<float> x = in.values(q.rows * q.cols);
    std::vector<double> found;
    for (std::int64_t r = 0; r < q.rows; ++r) {
      const LogSoftmax s = log_softmax(x.data() + r * q.cols, static_cast<std::size_t>(q.cols));
      found.insert(found.end(), {static_cast<double>(s.max), s.sum, s.log_sum});
    }
    return digest(found);
  }
};

}  // namespace

std::uint64_t ask(Stream& stream, std::size_t question) {
  return std::visit(Asker{stream, inputs_of(question)}, known_questions()[question]);
}

bool compared_here(CpuFamily family) { return family != CpuFamily::kAmx; }

std::uint64_t known_answer(Numerics numerics, std::size_t question) {
  assert(std::size(kAnswers) == known_questions().size());
  const auto all = exact_numerics();
  assert(std::size(kAnswers[0]) == all.size());
  return kAnswers[question][std::ranges::find(all, numerics) - all.begin()];
}

}  // namespace troupe::kernels
