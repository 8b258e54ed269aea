#include "kernels/gated_mlp.h"

#include "product_support.h"

namespace troupe::kernels {
namespace {

struct TestMlp {
  TestMatrix gate, up, down;
  TestMatrix gate_bias, up_bias, down_bias;
  GatedMlp packed;
};

TestMlp make_mlp(Numerics numerics, TestMatrix shape, std::int64_t hidden, std::int64_t inner,
                 int slices, bool biases, unsigned seed) {
  TestMlp m;
  shape.n = inner;
  shape.k = hidden;
  m.gate = filled(shape, seed);
  m.up = filled(shape, seed + 1);
  shape.n = hidden;
  shape.k = inner;
  m.down = filled(shape, seed + 2);
  m.packed.gate = pack(numerics, m.gate);
  m.packed.up = pack(numerics, m.up);
  m.packed.down = pack(numerics, m.down, {slices});
  if (!biases) return m;
  m.gate_bias = filled({Codes::kBf16, 1, inner}, seed + 3);
  m.up_bias = filled({Codes::kBf16, 1, inner}, seed + 4);
  m.down_bias = filled({Codes::kBf16, 1, hidden}, seed + 5);
  m.packed.gate_bias = pack(numerics, m.gate_bias, {1, false, true});
  m.packed.up_bias = pack(numerics, m.up_bias, {1, false, true});
  m.packed.down_bias = pack(numerics, m.down_bias, {1, false, true});
  return m;
}

/// W x + bias for one row.
std::vector<float> twin_linear(Numerics numerics, const TestMatrix& w, int slices,
                               const TestMatrix& bias, const std::vector<float>& x) {
  auto y = twin_product({numerics, slices}, w.values(), w.n, w.k, x, 1);
  if (bias.n == 0) return y;
  const auto values = bias.values();
  for (std::size_t i = 0; i < y.size(); ++i) y[i] += values[i];
  return y;
}

std::vector<float> twin_mlp(Numerics numerics, const TestMlp& m, GatedAct act,
                            const std::vector<float>& x) {
  auto h = twin_linear(numerics, m.gate, 1, m.gate_bias, x);
  const auto up = twin_linear(numerics, m.up, 1, m.up_bias, x);
  for (std::size_t i = 0; i < h.size(); ++i) h[i] = twin_act(act, h[i], up[i]);
  return twin_linear(numerics, m.down, m.packed.down.slices(), m.down_bias, h);
}

struct Case {
  TestMatrix shape;
  std::int64_t hidden, inner;
  int slices;
  bool biases;
  GatedAct act;
};

const GatedAct kSilu, kClamped = {GatedAct::Kind::kClampedSwiglu, 1.5f};
const std::vector<Case> kCases = {
    {{Codes::kBf16, 0, 0}, 64, 48, 1, false, kSilu},
    {{Codes::kF32, 0, 0}, 33, 70, 2, false, kSilu},
    {{Codes::kFp8, 0, 0, 128, 128}, 160, 256, 8, false, kSilu},
    {{Codes::kInt4, 0, 0, 1, 32, DType::kBf16}, 96, 128, 4, false, kSilu},
    {{Codes::kFp4, 0, 0, 1, 32, DType::kF8E8M0}, 64, 96, 1, true, kClamped},
    {{Codes::kBf16, 0, 0}, 40, 100, 4, true, kClamped},
};

TEST_CASE("gated_mlp has the bits of its definition") {
  for (const Family& f : families())
    for (const Case& c : kCases) {
      const TestMlp mlp =
          make_mlp(f.numerics, c.shape, c.hidden, c.inner, c.slices, c.biases, 1);
      for (const std::int64_t rows : {1, 3, 20, 70})
        for (const int threads : {1, 3}) {
          INFO(to_string(f) << " " << to_string(mlp.gate) << " rows " << rows << " threads "
                            << threads);
          auto x = Random(9).values(rows * c.hidden);
          std::vector<float> y(x.size()), all;
          TestStream stream(f, threads);
          gated_mlp(stream, mlp.packed, c.act, host_tensor(x.data(), DType::kF32, rows, c.hidden),
                    host_tensor(y.data(), DType::kF32, rows, c.hidden));
          for (std::int64_t r = 0; r < rows; ++r) {
            const std::vector<float> row(x.begin() + r * c.hidden,
                                         x.begin() + (r + 1) * c.hidden);
            const auto one = twin_mlp(f.numerics, mlp, c.act, row);
            all.insert(all.end(), one.begin(), one.end());
          }
          CHECK(differences(y, all) == 0);
        }
    }
}

/// A row on the wire and back.
struct WireRow {
  std::vector<std::byte> bytes;

  static WireRow of(DType wire, const std::vector<float>& values) {
    WireRow row;
    for (const float v : values) {
      const auto bits = std::bit_cast<std::uint32_t>(wire == DType::kF32 ? v : twin_bf(v));
      if (wire == DType::kF32) append(row.bytes, bits);
      else append(row.bytes, static_cast<std::uint16_t>(bits >> 16));
    }
    return row;
  }
  std::vector<float> values(DType wire) const {
    const auto count = static_cast<std::int64_t>(bytes.size() / dtype_size(wire));
    return twin_values({wire == DType::kF32 ? Codes::kF32 : Codes::kBf16, 1, count, {}},
                       bytes.data());
  }
};

TEST_CASE("a pass over experts gives every pair the bits that it has alone") {
  for (const Family& f : families())
    for (const Case& c : kCases) {
      INFO(to_string(f) << " " << to_string(c.shape));
      const DType wire = wire_type(f.numerics);
      std::vector<TestMlp> experts;
      for (unsigned e = 0; e < 4; ++e)
        experts.push_back(
            make_mlp(f.numerics, c.shape, c.hidden, c.inner, c.slices, c.biases, 10 * e + 1));
      // One expert has no rows, one has many.
      const std::vector<std::int32_t> counts = {3, 0, 40, 1};
      std::vector<ExpertCall> calls;
      std::vector<WireRow> rows, outputs, wanted;
      Random random(77);
      for (std::size_t e = 0; e < counts.size(); ++e) {
        calls.push_back({&experts[e].packed, static_cast<std::int32_t>(rows.size()), counts[e]});
        for (std::int32_t i = 0; i < counts[e]; ++i) {
          rows.push_back(WireRow::of(wire, random.values(c.hidden)));
          wanted.push_back(WireRow::of(
              wire, twin_mlp(f.numerics, experts[e], c.act, rows.back().values(wire))));
        }
      }
      for (int threads = 1; threads <= 4; threads += f.step_of_threads()) {
        outputs = rows;
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (std::size_t i = 0; i < rows.size(); ++i) {
          from.push_back(rows[i].bytes.data());
          to.push_back(outputs[i].bytes.data());
        }
        TestStream stream(f, threads);
        expert_mlp(stream, calls, c.act, from.data(), to.data());
        for (std::size_t i = 0; i < rows.size(); ++i)
          CHECK(differences(outputs[i].values(wire), wanted[i].values(wire)) == 0);
        stream.fault = "expert_mlp";
        expert_mlp(stream, calls, c.act, from.data(), to.data());
        CHECK(differences(outputs[0].values(wire), wanted[0].values(wire)) == 1);
      }
    }
}

TEST_CASE("nothing to do is done at once") {
  const Family reference;
  TestStream stream(reference);
  expert_mlp(stream, {}, {}, nullptr, nullptr);
  const TestMlp mlp = make_mlp(Numerics::kReference, {Codes::kBf16, 0, 0}, 8, 8, 1, false, 1);
  const ExpertCall call = {&mlp.packed, 0, 0};
  expert_mlp(stream, {&call, 1}, {}, nullptr, nullptr);
  CHECK(stream.stream.scratch().bytes() == 0);
}

}  // namespace
}  // namespace troupe::kernels
