#include "kernels/chosen_mlp.h"

#include <algorithm>
#include <numeric>

#include "breakable_stream.h"
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
        BreakableStream stream(f, threads);
        expert_mlp(stream, calls, c.act, from.data(), to.data());
        for (std::size_t i = 0; i < rows.size(); ++i)
          CHECK(differences(outputs[i].values(wire), wanted[i].values(wire)) == 0);
        stream.fault = "expert_mlp";
        expert_mlp(stream, calls, c.act, from.data(), to.data());
        CHECK(differences(outputs[0].values(wire), wanted[0].values(wire)) == 1);
      }
    }
}

/// What memory that ops reach holds, with room behind it.
template <class T>
T* placed(Stream& stream, const std::vector<T>& values, std::vector<Stream::Room>& rooms) {
  const std::size_t bytes = values.size() * sizeof(T);
  std::byte* const at = rooms.emplace_back().at_least(stream, bytes + 64);
  stream.write(at, values.data(), bytes);
  return reinterpret_cast<T*>(at);
}

/// Experts of each row, no two the same.
std::vector<std::int32_t> draw_ids(Random& random, std::int32_t rows, std::int32_t per_row,
                                   std::int32_t experts) {
  std::vector<std::int32_t> all(static_cast<std::size_t>(experts)), ids;
  std::iota(all.begin(), all.end(), 0);
  for (std::int32_t r = 0; r < rows; ++r) {
    for (std::int32_t i = 0; i < per_row; ++i)
      std::swap(all[static_cast<std::size_t>(i)],
                all[static_cast<std::size_t>(i) +
                    random.bits() % (all.size() - static_cast<std::size_t>(i))]);
    ids.insert(ids.end(), all.begin(), all.begin() + per_row);
    std::sort(ids.end() - per_row, ids.end());
  }
  return ids;
}

struct Choice {
  std::vector<std::int32_t> rows;  ///< of each piece
  std::int32_t per_row = 1, experts = 1, pairs_at_once = kPairsAtOnce;
  bool one = false;  ///< one expert has all
};

TEST_CASE("experts that the device chose give the bits of those that the host chose") {
  const std::vector<Choice> choices = {
      {{1}, 1, 1},        {{1}, 3, 40},          {{70}, 1, 6, 4096, true}, {{33, 1, 9}, 2, 5, 16},
      {{50}, 3, 7, 1},    {{3}, 33, 600},        {{40, 40}, 4, 64, 100},   {{17}, 5, 5},
      {{530}, 8, 9, 4096}};
  for (const Family& f : families())
    for (const Choice& choice : choices) {
      const Case& c = kCases[(choice.rows.size() + choice.per_row) % kCases.size()];
      INFO(to_string(f) << " " << to_string(c.shape) << " rows " << choice.rows[0] << " per row "
                        << choice.per_row << " of " << choice.experts);
      std::vector<TestMlp> kinds;
      for (unsigned e = 0; e < 5; ++e)
        kinds.push_back(
            make_mlp(f.numerics, c.shape, c.hidden, c.inner, c.slices, c.biases, 10 * e + 1));
      TestStream stream(f, 3);
      std::vector<const GatedMlp*> experts;
      for (std::int32_t e = 0; e < choice.experts; ++e)
        experts.push_back(&kinds[static_cast<std::size_t>(e) % kinds.size()].packed);
      const ExpertTable table = expert_table(stream, experts);
      const DType wire = wire_type(f.numerics);
      const std::size_t row_bytes = static_cast<std::size_t>(c.hidden) * dtype_size(wire);
      Random random(static_cast<unsigned>(choice.experts));
      std::vector<Stream::Room> rooms;
      std::vector<ChosenRows> pieces;
      std::vector<std::vector<std::byte>> expected;
      std::vector<std::int32_t> chosen(static_cast<std::size_t>(choice.experts));
      for (const std::int32_t count : choice.rows) {
        const auto pairs = static_cast<std::size_t>(count * choice.per_row);
        const WireRow rows = WireRow::of(wire, random.values(count * c.hidden));
        auto ids = draw_ids(random, count, choice.per_row, choice.experts);
        if (choice.one) ids.assign(pairs, choice.experts - 2);
        ChosenRows piece;
        piece.rows = placed(stream, rows.bytes, rooms);
        piece.ids = placed(stream, ids, rooms);
        piece.outputs = placed(stream, std::vector<std::byte>(pairs * row_bytes), rooms);
        piece.experts_read = placed(stream, std::vector<std::int32_t>(1), rooms);
        piece.count = count;
        pieces.push_back(piece);
        std::byte* const outputs = placed(stream, std::vector<std::byte>(pairs * row_bytes), rooms);
        std::vector<ExpertCall> calls;
        std::vector<const std::byte*> from;
        std::vector<std::byte*> to;
        for (std::int32_t e = 0; e < choice.experts; ++e) {
          const auto first = static_cast<std::int32_t>(from.size());
          for (std::size_t i = 0; i < pairs; ++i) {
            if (ids[i] != e) continue;
            from.push_back(piece.rows + i / static_cast<std::size_t>(choice.per_row) * row_bytes);
            to.push_back(outputs + i * row_bytes);
          }
          const auto end = static_cast<std::int32_t>(from.size());
          if (end == first) continue;
          calls.push_back({experts[static_cast<std::size_t>(e)], first, end - first});
          chosen[static_cast<std::size_t>(e)] = 1;
        }
        expert_mlp(stream, calls, c.act, from.data(), to.data());
        const std::byte* const here = stream.stream.read(outputs, pairs * row_bytes);
        expected.emplace_back(here, here + pairs * row_bytes);
      }
      chosen_mlp(stream, table, c.act, choice.per_row, pieces, choice.pairs_at_once);
      for (std::size_t i = 0; i < pieces.size(); ++i) {
        const std::byte* const outputs = stream.stream.read(pieces[i].outputs, expected[i].size());
        CHECK(std::equal(expected[i].begin(), expected[i].end(), outputs));
        const auto* read = reinterpret_cast<const std::int32_t*>(
            stream.stream.read(pieces[i].experts_read, sizeof(std::int32_t)));
        CHECK(*read == (i > 0 ? 0 : std::accumulate(chosen.begin(), chosen.end(), 0)));
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
