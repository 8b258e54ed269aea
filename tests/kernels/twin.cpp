#include "tests/kernels/twin.h"

#include <cstring>
#include <utility>

#include "runtime/xxh3.h"
#include "tests/kernels/twin_attention.h"
#include "tests/kernels/twin_products.h"
#include "tests/kernels/twin_rows.h"
#include "tests/kernels/twin_sample.h"

namespace troupe::kernels {
namespace {

using Row = std::vector<float>;

template <class T>
std::uint64_t digest(const std::vector<T>& v, std::uint64_t before = 0) {
  return xxh3_64(v.data(), v.size() * sizeof(T), before);
}

Row slice(const Row& v, std::int64_t at, std::int64_t n) {
  Row out(static_cast<std::size_t>(n));
  std::copy_n(v.begin() + at, n, out.begin());
  return out;
}

void append(Row& to, const Row& more) { to.insert(to.end(), more.begin(), more.end()); }

struct Answerer {
  Numerics numerics;
  Integers in;

  bool plain() const { return numerics == Numerics::kReference; }
  Row stored(const StoredQuestion& q) {
    const StoredBytes bytes(q, in);
    return twin_values(bytes.matrix(), bytes.codes.data());
  }
  TwinSum sum(const StoredQuestion& q, const PackOptions& options = {}) const {
    return {numerics, options.slices, options.full_precision, q.codes == Codes::kF32};
  }
  float wired(float x) const { return plain() ? x : twin_bf(x); }
  /// Of numbers that the wire type holds.
  std::uint64_t wire_digest(const Row& v) const {
    if (plain()) return digest(v);
    std::vector<std::uint16_t> halves;
    for (const float x : v) {
      std::uint32_t bits;
      std::memcpy(&bits, &x, sizeof bits);
      halves.push_back(static_cast<std::uint16_t>(bits >> 16));
    }
    return digest(halves);
  }

  std::uint64_t operator()(const LinearQuestion& q) {
    const auto [codes, n, k, bn, bk, sd, z] = q.weight;
    const Row x = in.values(q.rows * q.groups * k);
    const TwinSum product = sum(q.weight, q.options);
    std::vector<Row> weights;
    for (std::int64_t g = 0; g < q.groups; ++g) weights.push_back(stored(q.weight));
    const Row bias = in.values(q.bias ? q.groups * n : 0);
    Row y;
    for (std::int64_t r = 0; r < q.rows; ++r)
      for (std::int64_t g = 0; g < q.groups; ++g)
        for (std::int64_t i = 0; i < n; ++i) {
          const Row& w = weights[static_cast<std::size_t>(g)];
          const float value = product(&x[static_cast<std::size_t>((r * q.groups + g) * k)],
                                      &w[static_cast<std::size_t>(i * k)], k);
          y.push_back(q.bias ? value + bias[static_cast<std::size_t>(g * n + i)] : value);
        }
    return digest(y);
  }

  std::uint64_t operator()(const MlpQuestion& q) {
    const std::int64_t inner = q.weight.n, hidden = q.weight.k;
    StoredQuestion down_question = q.weight;
    std::swap(down_question.n, down_question.k);
    Row x = in.values(q.rows * hidden), y;
    for (float& v : x) v = wired(v);
    const TwinSum product = sum(q.weight);
    for (std::int64_t e = 0; e < q.experts; ++e) {
      const Row gate = stored(q.weight), up = stored(q.weight), down = stored(down_question);
      for (std::int64_t r = e; r < q.rows; ++r) {
        const float* row = &x[static_cast<std::size_t>(r * hidden)];
        Row h;
        for (std::int64_t i = 0; i < inner; ++i) {
          const auto at = static_cast<std::size_t>(i * hidden);
          const float g = product(row, &gate[at], hidden), u = product(row, &up[at], hidden);
          h.push_back(twin_act(q.act, g, u));
        }
        for (std::int64_t i = 0; i < hidden; ++i)
          y.push_back(wired(product(h.data(), &down[static_cast<std::size_t>(i * inner)], inner)));
      }
    }
    return wire_digest(y);
  }

  std::uint64_t operator()(const AttentionQuestion& q) {
    const std::int64_t count = q.last + 1;
    const Row keys = in.values(count * q.kv_heads * q.k_dim);
    const Row values = in.values(q.shared ? 0 : count * q.kv_heads * q.v_dim);
    const Row x = in.values(q.rows * q.heads * q.k_dim);
    const Row sinks = in.values(q.heads);
    std::vector<twin::Context> contexts;
    const auto held = [&](const Row& from, std::int64_t at, std::int64_t n) {
      Row row = slice(from, at, n);
      for (float& v : row) v = twin::cached(numerics, v);
      return row;
    };
    for (std::int64_t h = 0; h < q.kv_heads; ++h) {
      twin::Context c{numerics, AttentionQuestion::kScale, q.window, {}, {}};
      for (std::int64_t p = 0; p < count; ++p) {
        const std::int64_t at = p * q.kv_heads + h;
        c.keys.push_back(held(keys, at * q.k_dim, q.k_dim));
        c.values.push_back(q.shared ? held(keys, at * q.k_dim, q.v_dim)
                                    : held(values, at * q.v_dim, q.v_dim));
      }
      contexts.push_back(std::move(c));
    }
    Row y;
    for (std::int64_t i = 0; i < q.rows * q.heads; ++i) {
      const std::int64_t head = i % q.heads;
      append(y, twin::attention(contexts[static_cast<std::size_t>(head * q.kv_heads / q.heads)],
                                slice(x, i * q.k_dim, q.k_dim), q.last - i / q.heads,
                                q.sinks ? &sinks[static_cast<std::size_t>(head)] : nullptr));
    }
    return digest(y);
  }

  std::uint64_t operator()(const GateQuestion& q) {
    const Row logits = in.values(q.rows * q.config.experts);
    const Row bias = in.values(q.config.experts);
    twin::Choice all;
    for (std::int64_t r = 0; r < q.rows; ++r) {
      const auto one =
          twin::gate(q.config, slice(logits, r * q.config.experts, q.config.experts), bias);
      all.ids.insert(all.ids.end(), one.ids.begin(), one.ids.end());
      append(all.weights, one.weights);
    }
    return digest(all.weights, digest(all.ids));
  }

  std::uint64_t operator()(const RowsQuestion& q) {
    switch (q.op) {
      case RowOp::kRopeInterleaved:
        return rope(q, RopePairs::kInterleaved);
      case RowOp::kRopeHalves:
        return rope(q, RopePairs::kHalves);
      case RowOp::kEmbedding: {
        const Row table = stored({Codes::kBf16, q.rows + 2, q.cols});
        return digest(slice(table, q.cols, q.rows * q.cols));
      }
      case RowOp::kCombine:
        return combine(q);
      case RowOp::kJoin: {
        Row parts[4];
        for (Row& part : parts) part = in.values(q.rows * q.cols);
        const Row bias = in.values(q.cols);
        Row y;
        for (std::size_t i = 0; i < parts[0].size(); ++i)
          y.push_back((parts[0][i] + parts[1][i]) + (parts[2][i] + parts[3][i]) +
                      bias[i % bias.size()]);
        return digest(y);
      }
      case RowOp::kLogSoftmax: {
        const Row x = in.values(q.rows * q.cols);
        std::vector<double> found;
        for (std::int64_t r = 0; r < q.rows; ++r)
          for (const double v : twin::log_softmax(slice(x, r * q.cols, q.cols))) found.push_back(v);
        return digest(found);
      }
      default:
        break;
    }
    Row a = in.values(q.rows * q.cols), b = in.values(q.rows * q.cols), normed;
    const GatedAct clamped{GatedAct::Kind::kClampedSwiglu, RowsQuestion::kLimit};
    for (std::size_t i = 0; i < a.size(); ++i) {
      if (q.op == RowOp::kResidual) a[i] += b[i];
      if (q.op == RowOp::kSilu) a[i] = twin_act({}, a[i], b[i]);
      if (q.op == RowOp::kClampedSwiglu) a[i] = twin_act(clamped, a[i], b[i]);
      if (q.op == RowOp::kToWire) a[i] = twin_bf(a[i]);
    }
    if (q.op != RowOp::kNorm) return digest(a);
    for (std::int64_t r = 0; r < q.rows; ++r)
      append(normed, twin::norm(numerics, slice(a, r * q.cols, q.cols), slice(b, 0, q.cols),
                                RowsQuestion::kEpsilon));
    return digest(normed);
  }

  std::uint64_t operator()(const SampleQuestion& q) {
    const SampleInputs inputs(q, in);
    std::vector<SampleResult> results;
    std::vector<TokenLogprob> top;
    for (const SampleCall& call : inputs.calls) {
      const SampleAnswer a = exact_sample(call, slice(inputs.logits, call.row * q.vocab, q.vocab),
                                          inputs.adjusted, inputs.masks);
      results.push_back(a.result);
      top.insert(top.end(), a.top.begin(), a.top.end());
    }
    return digest(top, digest(results));
  }

  std::uint64_t rope(const RowsQuestion& q, RopePairs pairs) {
    const std::int64_t half = q.cols / 2;
    const Row cos = in.values(q.rows * half), sin = in.values(q.rows * half);
    const Row x = in.values(q.rows * 2 * q.cols);
    Row y;
    for (std::int64_t head = 0; head < q.rows * 2; ++head)
      append(y, twin::rope(slice(x, head * q.cols, q.cols), slice(cos, head / 2 * half, half),
                           slice(sin, head / 2 * half, half), pairs));
    return digest(y);
  }

  std::uint64_t combine(const RowsQuestion& q) {
    Row y = in.values(q.rows * q.cols);
    const Row outputs = in.values(q.rows * q.kOutputs * q.cols);
    for (std::int64_t o = 0; o < q.rows * q.kOutputs; ++o) {
      const float weight = in.value();
      for (std::int64_t i = 0; i < q.cols; ++i)
        y[static_cast<std::size_t>(o / q.kOutputs * q.cols + i)] +=
            weight * wired(outputs[static_cast<std::size_t>(o * q.cols + i)]);
    }
    return digest(y);
  }
};

}  // namespace

std::uint64_t twin_answer(Numerics numerics, std::size_t question) {
  return std::visit(Answerer{numerics, inputs_of(question)}, known_questions()[question]);
}

}  // namespace troupe::kernels
