/// What holds of `cuda_mma` in whatever order an mma adds: how far from float64 it is, and that a
/// row has its bits alone. (That the kernels have the bits of the definition, with the order that
/// the scalar twin has too, the tests of all families say.)
#include <cmath>

#include "kernels/attention.h"
#include "kernels/chosen_mlp.h"
#include "kernels/gated_mlp.h"
#include "mma_families.h"
#include "support.h"
#include "tests/kernels/twin_attention.h"

namespace troupe::kernels {
namespace {

/// Of the sum of the magnitudes of what a product adds.
constexpr double kProductBound = 0x1p-17;
/// Of the largest value that is attended to: weights are rounded to bf16.
constexpr double kAttentionBound = 0x1p-9;

double wide(float x) { return static_cast<double>(x); }

TEST_CASE("a product by tensor cores is near float64, whatever the format and the order") {
  struct Shape {
    std::int64_t n, k, rows;
    int slices;
  };
  double worst = 0;
  unsigned seed = 30;
  for (const Family& f : all_orders())
    for (const Shape& s : {Shape{40, 96, 3, 1}, {33, 2400, 9, 1}, {40, 2048, 12, 8}})
      for (const TestMatrix& shape :
           {TestMatrix{Codes::kBf16, s.n, s.k}, TestMatrix{Codes::kF32, s.n, s.k},
            TestMatrix{Codes::kFp8, s.n, s.k, 128, 128},
            TestMatrix{Codes::kInt4, s.n, s.k, 1, 32, DType::kF16, true},
            TestMatrix{Codes::kFp4, s.n, s.k, 1, 32, DType::kF8E8M0}}) {
        const bool full = ++seed % 2 == 0;
        const TestMatrix m = filled(shape, seed);
        const auto x = Random(seed).values(s.rows * s.k), w = m.values();
        INFO(to_string(f) << " " << to_string(m) << " full " << full);
        TestStream stream(f, 2);
        const auto y = product(stream, pack(f.numerics, m, {s.slices, full}), x, s.rows);
        for (std::int64_t r = 0; r < s.rows; ++r)
          for (std::int64_t i = 0; i < s.n; ++i) {
            double exact = 0, size = 0;
            for (std::int64_t k = 0; k < s.k; ++k) {
              const float a = x[static_cast<std::size_t>(r * s.k + k)];
              const float b = w[static_cast<std::size_t>(i * s.k + k)];
              const bool two_parts = full && m.codes == Codes::kF32;
              const double term = wide(full ? a : twin_bf(a)) * wide(two_parts ? b : twin_bf(b));
              exact += term;
              size += std::fabs(term);
            }
            const double error = std::fabs(wide(y[static_cast<std::size_t>(r * s.n + i)]) - exact);
            worst = std::max(worst, error / size);
            CHECK(error <= kProductBound * size);
          }
      }
  MESSAGE("products: off by " << worst << " of what they add at most");
}

TEST_CASE("a product of more than a CTA's warps take at once has the bits of its definition") {
  constexpr std::int64_t kN = 33, kK = 4640, kRows = 3;
  for (const Family& f : families())
    for (const bool full : {false, true}) {
      INFO(to_string(f) << " full " << full);
      const TestMatrix m = filled({Codes::kBf16, kN, kK}, 35);
      const auto x = Random(36).values(kRows * kK);
      TestStream stream(f);
      const auto y = product(stream, pack(f.numerics, m, {1, full}), x, kRows);
      const TwinSum sum = {f.numerics, 1, full};
      CHECK(differences(y, twin_product(sum, m.values(), kN, kK, x, kRows)) == 0);
    }
}

TEST_CASE("a row's product has its bits in any batch and place, whatever the order of an mma") {
  constexpr std::int64_t kRows = 70, kN = 40, kK = 608;
  for (const Family& f : other_orders())
    for (const PackOptions& options : {PackOptions{1, false}, {2, true}}) {
      INFO(to_string(f) << " full " << options.full_precision);
      const auto x = Random(41).values(kRows * kK);
      TestStream stream(f, 3);
      const Weight w =
          pack(f.numerics, filled({Codes::kFp8, kN, kK, 1, 32, DType::kBf16}, 40), options);
      std::vector<float> alone, turned, of_turned;
      for (std::int64_t r = 0; r < kRows; ++r) {
        const std::vector<float> row(x.begin() + r * kK, x.begin() + (r + 1) * kK);
        const auto y = product(stream, w, row, 1);
        alone.insert(alone.end(), y.begin(), y.end());
        of_turned.insert(of_turned.begin(), y.begin(), y.end());
        turned.insert(turned.begin(), row.begin(), row.end());
      }
      for (const std::int64_t rows : {2, 7, 8, 9, 17, 32, 33, 70}) {
        const std::vector<float> some(alone.begin(), alone.begin() + rows * kN);
        CHECK(differences(product(stream, w, x, rows), some) == 0);
      }
      CHECK(differences(product(stream, w, turned, kRows), of_turned) == 0);
    }
}

TEST_CASE("slices summed apart and joined give the whole, whatever the order of an mma") {
  constexpr std::int64_t kN = 40, kK = 8 * 96, kRows = 5;
  for (const Family& f : other_orders()) {
    const TestMatrix m = filled({Codes::kBf16, kN, kK}, 50);
    const auto x = Random(51).values(kRows * kK);
    TestStream stream(f);
    const auto whole = product(stream, pack(f.numerics, m, {8}), x, kRows);
    for (const int ranks : {2, 4, 8}) {
      const std::int64_t k = kK / ranks;
      std::vector<std::vector<float>> parts;
      for (int rank = 0; rank < ranks; ++rank) {
        TestMatrix own = {Codes::kBf16, kN, k};
        std::vector<float> own_x;
        for (std::int64_t i = 0; i < kN; ++i) {
          const auto* from = m.data.data() + (i * kK + rank * k) * 2;
          own.data.insert(own.data.end(), from, from + k * 2);
        }
        for (std::int64_t r = 0; r < kRows; ++r)
          own_x.insert(own_x.end(), x.begin() + r * kK + rank * k,
                       x.begin() + r * kK + (rank + 1) * k);
        parts.push_back(product(stream, pack(f.numerics, own, {8 / ranks}), own_x, kRows));
      }
      for (; parts.size() > 1; parts.resize(parts.size() / 2))
        for (std::size_t i = 0; i < parts.size() / 2; ++i)
          for (std::size_t j = 0; j < whole.size(); ++j)
            parts[i][j] = parts[2 * i][j] + parts[2 * i + 1][j];
      CHECK(differences(parts[0], whole) == 0);
    }
  }
}

/// One sequence in a cache of blocks of 16 that lie as they come.
struct Sequence {
  Sequence(Stream& stream, std::int64_t context, std::int64_t kv_heads, std::int64_t k_dim,
           std::int64_t v_dim)
      : count(context), heads(kv_heads), k(k_dim), v(v_dim) {
    const DType type = kv_type(stream.numerics());
    const std::int64_t slots = (count + 15) / 16 * 16;
    for (int i = 0; i < slots / 16; ++i) table.push_back(i);
    const auto fill = [&](KvPool& pool, Buffer& bytes, std::vector<float>& held, std::int64_t row,
                          unsigned seed) {
      bytes = Buffer(static_cast<std::size_t>(slots * row) * dtype_size(type));
      pool = {bytes.data(), type, 16, row};
      auto x = random_values(static_cast<std::size_t>(count * row), seed);
      std::vector<std::int32_t> at;
      for (std::int32_t p = 0; p < count; ++p) at.push_back(p);
      const std::vector<const std::int32_t*> tables(at.size(), table.data());
      store_kv(stream, pool, {tables.data(), at.data()}, matrix(x, count));
      for (float& value : x) value = twin::cached(stream.numerics(), value);
      held = std::move(x);
    };
    fill(in.keys, key_bytes, keys, heads * k, 60);
    fill(in.values, value_bytes, values, heads * v, 61);
    in.kv_heads = heads;
    in.scale = 0.2f;
  }

  std::vector<float> run(Stream& stream, std::vector<float> q, std::int64_t query_heads,
                         const std::vector<std::int32_t>& positions) const {
    const auto rows = static_cast<std::int64_t>(positions.size());
    const std::vector<const std::int32_t*> tables(positions.size(), table.data());
    std::vector<float> out(static_cast<std::size_t>(rows * query_heads * v));
    attention(stream, in, {tables.data(), positions.data()}, matrix(q, rows).split(query_heads),
              matrix(out, rows).split(query_heads));
    return out;
  }

  /// In float64, of queries that are rounded.
  std::vector<double> exact(const float* q, std::int64_t kv_head, std::int64_t position) const {
    std::vector<double> out(static_cast<std::size_t>(v)), scores;
    double total = 0, most = -HUGE_VAL;
    for (std::int64_t p = 0; p <= position; ++p) {
      double score = 0;
      for (std::int64_t i = 0; i < k; ++i)
        score += wide(twin_bf(q[i])) *
                 wide(keys[static_cast<std::size_t>((p * heads + kv_head) * k + i)]);
      scores.push_back(score * wide(in.scale));
      most = std::max(most, scores.back());
    }
    for (std::int64_t p = 0; p <= position; ++p) {
      const double weight = std::exp(scores[static_cast<std::size_t>(p)] - most);
      total += weight;
      for (std::int64_t d = 0; d < v; ++d)
        out[static_cast<std::size_t>(d)] +=
            weight * wide(values[static_cast<std::size_t>((p * heads + kv_head) * v + d)]);
    }
    for (double& x : out) x /= total;
    return out;
  }

  std::int64_t count, heads, k, v;
  std::vector<std::int32_t> table;
  Buffer key_bytes, value_bytes;
  std::vector<float> keys, values;
  AttentionInputs in;
};

TEST_CASE("attention by tensor cores is near float64, whatever the order") {
  double worst = 0;
  for (Family f : all_orders())
    for (const Numerics n : {Numerics::kCudaMma, Numerics::kCudaMmaKvFp8}) {
      f.numerics = n;
      INFO(to_string(f));
      TestStream stream(f, 2);
      const Sequence s(stream, 1100, 2, 64, 48);
      const auto q = random_values(3 * 8 * 64, 62, 3);
      const std::vector<std::int32_t> positions = {20, 1023, 1099};
      const auto out = s.run(stream, q, 8, positions);
      double largest = 0;
      for (const float x : s.values) largest = std::max(largest, std::fabs(wide(x)));
      for (std::size_t i = 0; i < 3 * 8; ++i) {
        const auto exact =
            s.exact(&q[i * 64], static_cast<std::int64_t>(i % 8 / 4), positions[i / 8]);
        for (std::size_t d = 0; d < 48; ++d) {
          const double error = std::fabs(wide(out[i * 48 + d]) - exact[d]) / largest;
          worst = std::max(worst, error);
          CHECK(error <= kAttentionBound);
        }
      }
    }
  MESSAGE("attention: off by " << worst << " of the largest value at most");
}

TEST_CASE("a row is attended to alone as in any batch, whatever the order of an mma") {
  for (const Family& f : other_orders()) {
    INFO(to_string(f));
    TestStream stream(f, 2);
    const Sequence s(stream, 1070, 1, 72, 40);
    const std::size_t row = 5 * 72;
    std::vector<std::int32_t> positions;
    for (std::int32_t p = 1016; p < 1032; ++p) positions.push_back(p);
    const auto q = random_values(positions.size() * row, 63, 2);
    std::vector<float> alone;
    for (std::size_t r = 0; r < positions.size(); ++r) {
      const auto one = s.run(stream,
                             {q.begin() + static_cast<std::ptrdiff_t>(r * row),
                              q.begin() + static_cast<std::ptrdiff_t>((r + 1) * row)},
                             5, {positions[r]});
      alone.insert(alone.end(), one.begin(), one.end());
    }
    for (const std::size_t rows : {2, 7, 13, 16}) {
      const auto some =
          s.run(stream, {q.begin(), q.begin() + static_cast<std::ptrdiff_t>(rows * row)}, 5,
                {positions.begin(), positions.begin() + static_cast<long>(rows)});
      CHECK(same_bits(some.data(), alone.data(), some.size()));
    }
  }
}

TEST_CASE(
    "a gated MLP by tensor cores has a row's bits in any pass, and is near the plain kernel") {
  for (const Family& f : other_orders()) {
    INFO(to_string(f));
    GatedMlp mlp;
    mlp.gate = pack(f.numerics, filled({Codes::kFp8, 96, 160, 32, 32}, 70));
    mlp.up = pack(f.numerics, filled({Codes::kFp8, 96, 160, 32, 32}, 71));
    mlp.down = pack(f.numerics, filled({Codes::kFp8, 160, 96, 32, 32}, 72), {sum_slices(96)});
    const auto run = [&](const Backend* backend, std::vector<float> x) {
      Family by = f;
      by.backend = backend;
      TestStream stream(by, 2);
      std::vector<float> y(x.size());
      const auto rows = static_cast<std::int64_t>(x.size()) / 160;
      gated_mlp(stream, mlp, {}, matrix(x, rows), matrix(y, rows));
      return y;
    };
    const auto x = Random(73).values(40 * 160);
    const auto all = run(f.backend, x), plain = run(plain_backend(), x);
    double largest = 0, worst = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      largest = std::max(largest, std::fabs(wide(plain[i])));
      worst = std::max(worst, std::fabs(wide(all[i]) - wide(plain[i])));
    }
    CHECK(worst > 0);
    CHECK(worst <= 0x1p-8 * largest);
    for (const std::size_t r : {0, 8, 31, 39}) {
      const auto at = static_cast<std::ptrdiff_t>(r * 160);
      const auto one = run(f.backend, {x.begin() + at, x.begin() + at + 160});
      CHECK(same_bits(one.data(), all.data() + at, one.size()));
    }
  }
}

TEST_CASE(
    "experts that the device chose have the bits of those that the host chose, whatever the "
    "order") {
  constexpr std::int64_t kHidden = 160, kInner = 96;
  constexpr std::int32_t kExperts = 3, kRows = 45, kPerRow = 2;
  constexpr std::size_t kRowBytes = kHidden * 2;
  for (const Family& f : other_orders()) {
    INFO(to_string(f));
    TestStream stream(f, 2);
    std::vector<GatedMlp> mlps(kExperts);
    std::vector<const GatedMlp*> experts;
    for (unsigned e = 0; e < kExperts; ++e) {
      mlps[e].gate = pack(f.numerics, filled({Codes::kFp8, kInner, kHidden, 32, 32}, 80 + e));
      mlps[e].up = pack(f.numerics, filled({Codes::kFp8, kInner, kHidden, 32, 32}, 90 + e));
      mlps[e].down = pack(f.numerics, filled({Codes::kFp8, kHidden, kInner, 32, 32}, 100 + e),
                          {sum_slices(kInner)});
      experts.push_back(&mlps[e]);
    }
    std::vector<std::byte> rows;
    for (const float x : Random(110).values(kRows * kHidden))
      append(rows, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(x) >> 16));
    std::vector<std::byte> chosen(rows.size() * kPerRow), expected(chosen.size());
    std::vector<std::int32_t> ids, read(1);
    for (std::int32_t i = 0; i < kRows * kPerRow; ++i) ids.push_back((i + i / 4) % kExperts);
    const ChosenRows piece = {rows.data(), ids.data(), chosen.data(), read.data(), kRows};
    chosen_mlp(stream, expert_table(stream, experts), {}, kPerRow, {&piece, 1});

    std::vector<ExpertCall> calls;
    std::vector<const std::byte*> from;
    std::vector<std::byte*> to;
    for (std::int32_t e = 0; e < kExperts; ++e) {
      const auto first = static_cast<std::int32_t>(from.size());
      for (std::size_t i = 0; i < ids.size(); ++i) {
        if (ids[i] != e) continue;
        from.push_back(rows.data() + i / kPerRow * kRowBytes);
        to.push_back(expected.data() + i * kRowBytes);
      }
      const auto count = static_cast<std::int32_t>(from.size()) - first;
      calls.push_back({experts[static_cast<std::size_t>(e)], first, count});
    }
    expert_mlp(stream, calls, {}, from.data(), to.data());
    CHECK(chosen == expected);
    CHECK(read[0] == kExperts);
  }
}

TEST_CASE("windows, sinks and MLA's widths by tensor cores are near the plain kernel") {
  struct Shape {
    std::int64_t kv_heads, k, v, window;
    bool sinks;
  };
  for (Family f : other_orders())
    for (const Shape& shape : {Shape{2, 64, 64, 0, true},
                               {2, 64, 64, 100, true},
                               {1, 128, 128, 31, false},
                               {1, 576, 512, 0, false}}) {
      INFO(to_string(f) << " width " << shape.k << " window " << shape.window);
      constexpr std::int64_t kHeads = 8;
      const std::vector<std::int32_t> positions = {5, 290, 291};
      const auto q =
          random_values(positions.size() * kHeads * static_cast<std::size_t>(shape.k), 120);
      std::vector<float> sinks = random_values(kHeads, 121);
      const auto run = [&](const Backend* backend) {
        f.backend = backend;
        TestStream stream(f, 2);
        Sequence s(stream, 292, shape.kv_heads, shape.k, shape.v);
        s.in.window = shape.window;
        s.in.scale = 0.05f;
        if (shape.sinks) s.in.sinks = sinks.data();
        if (shape.k == 576) s.in.values = s.in.keys;  // MLA: values are the first of the keys
        return s.run(stream, q, kHeads, positions);
      };
      const Backend* const own = f.backend;
      const auto out = run(own), plain = run(plain_backend());
      f.backend = own;
      double worst = 0;
      for (std::size_t i = 0; i < out.size(); ++i)
        worst = std::max(worst, std::fabs(wide(out[i]) - wide(plain[i])));
      CHECK(worst > 0);
      CHECK(worst <= 2 * kAttentionBound);  // values are at most 1, and both are off
    }
}

}  // namespace
}  // namespace troupe::kernels
