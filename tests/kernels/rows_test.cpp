/// The ops that treat every row by itself: norms, activations, rotary turns, rounding.
#include <functional>

#include "kernels/attention.h"
#include "kernels/bad_rows.h"
#include "kernels/combine.h"
#include "kernels/embedding.h"
#include "kernels/join.h"
#include "kernels/residual.h"
#include "kernels/rms_norm.h"
#include "kernels/rope.h"
#include "kernels/round_wire.h"
#include "kernels/silu_mul.h"
#include "runtime/bf16.h"
#include "support.h"
#include "tests/kernels/twin_attention.h"
#include "tests/kernels/twin_rows.h"

namespace troupe::kernels {
namespace {

using Row = std::vector<float>;

constexpr std::int64_t kWidths[] = {1, 2, 7, 16, 33, 100, 127, 128, 129, 576, 1000};
/// What tests of single numbers are made of, among random ones of any size.
const Row kHostile = {
    NAN,   INFINITY,  -INFINITY, 3.4e38f, -3.4e38f, 0.0f,     -0.0f,
    1e-45f, 0x1p-126f, 0x1.fffffep-127f, 0x1.000002p-126f, 448.0f, 464.0f, 465.0f,
    -87.0f, -87.1f, 87.5f, 89.0f, -1000.0f, 1000.0f};

Row wild_row(std::int64_t n, unsigned seed) {
  Row x = Random(seed).wild_values(n);
  for (std::size_t i = 0; i < x.size(); ++i)
    if (seed % 2 == 0 && i % 5 == 3) x[i] = kHostile[(i / 5 + seed) % kHostile.size()];
  return x;
}

/// Another number for each part of a sum.
float scaled(float v, std::size_t part) {
  return part % 2 == 0 ? v * static_cast<float>(1 + part) : v / static_cast<float>(3 * part);
}

Row row_of(const Row& v, std::int64_t r, std::int64_t d) {
  Row out(static_cast<std::size_t>(d));
  std::copy_n(v.begin() + r * d, d, out.begin());
  return out;
}

Weight vector(Numerics numerics, const Row& values) {
  TestMatrix m{Codes::kF32, 1, static_cast<std::int64_t>(values.size())};
  for (const float v : values) append(m.data, v);
  return pack(numerics, m, {1, false, true});
}

/// Turns x [rows, d] into y [rows, d]; `first` is the number of its first row.
using Op = std::function<void(Stream&, std::int64_t first, const Tensor& x, const Tensor& y)>;
using Twin = std::function<Row(Numerics, std::int64_t row, const Row& x)>;

/// Every family has the twin's bits, for rows in batches of any size on 1 to 4 threads.
void check(std::int64_t d, const Op& op, const Twin& twin) {
  Row x;
  for (unsigned r = 0; r < 512; ++r)
    for (const float v : wild_row(d, r + 1)) x.push_back(v);
  for (const Family& f : families()) {
    CAPTURE(to_string(f));
    Row expected;
    for (std::int64_t r = 0; r < 512; ++r)
      for (const float v : twin(f.numerics, r, row_of(x, r, d))) expected.push_back(v);
    for (const std::size_t rows : kRowCounts) {
      TestStream stream(f, 1 + static_cast<int>(rows % 4));
      const auto count = static_cast<std::int64_t>(rows), first = 512 - count;
      Row y(rows * static_cast<std::size_t>(d), 7.0f);
      op(stream, first, matrix(x, 512).part(first, count), matrix(y, count));
      const Row last(expected.end() - static_cast<std::ptrdiff_t>(y.size()), expected.end());
      CHECK(differences(y, last) == 0);
    }
  }
}

TEST_CASE("rms_norm") {
  for (const std::int64_t d : kWidths) {
    const Row weight = Random(3).values(d);
    check(
        d,
        [&](Stream& stream, std::int64_t, const Tensor& x, const Tensor& y) {
          rms_norm(stream, x, vector(stream.numerics(), weight), 1e-6f, y);
        },
        [&](Numerics n, std::int64_t, const Row& x) { return twin::norm(n, x, weight, 1e-6f); });
  }
}

TEST_CASE("rms_norm of every head, in place, near float64") {
  constexpr std::int64_t kD = 100;
  for (const Family& f : families()) {
    Row x = Random(5).values(6 * kD);
    const Row before = x, weight = Random(6).values(kD);
    TestStream stream(f);
    const Tensor heads = matrix(x, 2).split(3);
    rms_norm(stream, heads, vector(f.numerics, weight), 1e-6f, heads);
    for (std::size_t h = 0; h < 6; ++h) {
      double squares = 0;
      for (std::size_t i = 0; i < kD; ++i)
        squares += std::pow(static_cast<double>(before[h * kD + i]), 2);
      const double scale = 1 / std::sqrt(squares / kD + 1e-6);
      for (std::size_t i = 0; i < kD; ++i)
        CHECK(static_cast<double>(x[h * kD + i]) ==
              doctest::Approx(static_cast<double>(before[h * kD + i]) * scale *
                              static_cast<double>(weight[i])).epsilon(1e-6));
    }
  }
}

TEST_CASE("silu_mul, both kinds, also in place") {
  for (const GatedAct act : {GatedAct{}, GatedAct{GatedAct::Kind::kClampedSwiglu, 7.0f}})
    for (const std::int64_t d : kWidths) {
      const Row up = wild_row(d, 8);
      check(
          d,
          [&](Stream& stream, std::int64_t, const Tensor& x, const Tensor& y) {
            for (std::int64_t r = 0; r < x.rows; ++r) {
              Row u = up;
              Tensor to = y.part(r, 1);
              std::copy_n(static_cast<float*>(x.data) + r * d, d, static_cast<float*>(to.data));
              silu_mul(stream, act, to, matrix(u, 1), to);
            }
          },
          [&](Numerics, std::int64_t, const Row& x) {
            Row y;
            for (std::size_t i = 0; i < x.size(); ++i) y.push_back(twin_act(act, x[i], up[i]));
            return y;
          });
    }
}

TEST_CASE("silu_mul at the ends of the range") {
  for (const Family& f : families()) {
    TestStream stream(f);
    Row gate = {-1000, 1000, INFINITY, NAN}, up(4, 1.0f), y(4);
    silu_mul(stream, {}, matrix(gate, 1), matrix(up, 1), matrix(y, 1));
    CHECK(y[0] == 0);
    CHECK(y[1] == 1000);
    CHECK(y[2] == INFINITY);
    CHECK(std::isnan(y[3]));
  }
}

TEST_CASE("rope turns the first elements of every head and leaves the rest") {
  constexpr std::int64_t kHalf = 21, kPositions = 40, kWide = 2 * kHalf + 5;
  Row cos, sin;
  for (int p = 0; p < kPositions; ++p)
    for (int i = 0; i < kHalf; ++i) {
      cos.push_back(static_cast<float>(std::cos(p * std::pow(10.0, -i / 5.0))));
      sin.push_back(static_cast<float>(std::sin(p * std::pow(10.0, -i / 5.0))));
    }
  std::vector<std::int32_t> positions;
  for (int r = 0; r < 512; ++r) positions.push_back(r * 7 % kPositions);
  for (const RopePairs pairs : {RopePairs::kInterleaved, RopePairs::kHalves})
    check(
        3 * kWide,
        [&](Stream& stream, std::int64_t first, const Tensor& x, const Tensor& y) {
          std::copy_n(static_cast<float*>(x.data), x.rows * x.dim, static_cast<float*>(y.data));
          rope(stream, {cos.data(), sin.data(), kPositions, kHalf}, pairs, positions.data() + first,
               y.split(3));
        },
        [&](Numerics, std::int64_t row, const Row& x) {
          const std::int64_t at = positions[static_cast<std::size_t>(row)];
          Row y;
          for (std::int64_t h = 0; h < 3; ++h)
            for (const float v : twin::rope(row_of(x, h, kWide), row_of(cos, at, kHalf),
                                            row_of(sin, at, kHalf), pairs))
              y.push_back(v);
          return y;
        });
}

TEST_CASE("residual_add") {
  for (const std::int64_t d : kWidths)
    check(
        d,
        [&](Stream& stream, std::int64_t, const Tensor& x, const Tensor& y) {
          std::fill_n(static_cast<float*>(y.data), y.rows * y.dim, 0.125f);
          residual_add(stream, x, y);
        },
        [&](Numerics, std::int64_t, const Row& x) {
          Row y;
          for (const float v : x) y.push_back(v + 0.125f);
          return y;
        });
}

TEST_CASE("parts of a sum are joined in the order of the slices") {
  for (const std::int64_t d : kWidths)
    for (const std::size_t count : {1, 2, 4, 8})
      check(
          d,
          [&](Stream& stream, std::int64_t, const Tensor& x, const Tensor& y) {
            // The parts are x, and x times powers of two; the bias is the same for all rows.
            std::vector<Row> parts(count);
            std::vector<const float*> each;
            for (std::size_t p = 0; p < count; ++p) {
              for (std::int64_t i = 0; i < x.rows * d; ++i)
                parts[p].push_back(scaled(static_cast<const float*>(x.data)[i], p));
              each.push_back(parts[p].data());
            }
            const Row bias(static_cast<std::size_t>(d), 0.75f);
            join(stream, each, count == 4 ? bias.data() : nullptr, y);
          },
          [&](Numerics, std::int64_t, const Row& x) {
            Row y;
            for (const float v : x) {
              std::vector<float> sums;
              for (std::size_t p = 0; p < count; ++p) sums.push_back(scaled(v, p));
              for (; sums.size() > 1; sums.resize(sums.size() / 2))
                for (std::size_t p = 0; p < sums.size() / 2; ++p)
                  sums[p] = sums[2 * p] + sums[2 * p + 1];
              y.push_back(count == 4 ? sums[0] + 0.75f : sums[0]);
            }
            return y;
          });
}

TEST_CASE("the wire rounds once") {
  for (const std::int64_t d : kWidths)
    for (const DType type : {DType::kBf16, DType::kF32})
      check(
          d,
          [&](Stream& stream, std::int64_t, const Tensor& x, const Tensor& y) {
            std::vector<std::byte> bytes(static_cast<std::size_t>(x.rows * d) * dtype_size(type));
            const Tensor there = host_tensor(bytes.data(), type, x.rows, d);
            to_wire(stream, x, there);
            from_wire(stream, there, y);
          },
          [&](Numerics, std::int64_t, const Row& x) {
            Row y;
            for (const float v : x) y.push_back(type == DType::kBf16 ? twin_bf(v) : v);
            return y;
          });
}

TEST_CASE("embedding widens rows") {
  constexpr std::int64_t kN = 20, kK = 33;
  const std::vector<std::int32_t> ids = {19, 0, 7, 7};
  for (const Family& f : families())
    for (const Codes codes : {Codes::kBf16, Codes::kF32}) {
      TestMatrix m = filled({codes, kN, kK}, 7);
      const Weight table = pack(f.numerics, m, {1, false, true});
      const Row values = m.values();
      Row y(4 * kK), expected;
      TestStream stream(f);
      embedding(stream, table, ids.data(), matrix(y, 4));
      for (const auto id : ids)
        for (const float v : row_of(values, id, kK)) expected.push_back(v);
      CHECK(differences(y, expected) == 0);
    }
}

TEST_CASE("combine multiplies, then adds, in the order given") {
  constexpr std::int64_t kRows = 70, kD = 45, kPerRow = 3;
  for (const Family& f : families()) {
    const bool wide = wire_type(f.numerics) == DType::kF32;
    const Row base = wild_row(kRows * kD, 9), outs = wild_row(kRows * kPerRow * kD, 10);
    std::vector<std::uint16_t> halves;
    for (const float v : outs) halves.push_back(to_bf16(v).bits);
    std::vector<WeightedOutput> list;
    for (std::int64_t i = 0; i < kRows * kPerRow; ++i)
      list.push_back({wide ? reinterpret_cast<const std::byte*>(outs.data() + i * kD)
                           : reinterpret_cast<const std::byte*>(halves.data() + i * kD),
                      0.1f * static_cast<float>(i + 1)});
    Row y = base, expected = base;
    TestStream stream(f, 2);
    combine(stream, list, kPerRow, matrix(y, kRows));
    for (std::int64_t i = 0; i < kRows * kPerRow * kD; ++i) {
      const auto out = static_cast<std::size_t>(i);
      const float value = wide ? outs[out] : twin_bf(outs[out]);
      expected[static_cast<std::size_t>(i / kD / kPerRow * kD + i % kD)] +=
          list[static_cast<std::size_t>(i / kD)].weight * value;
    }
    CHECK(differences(y, expected) == 0);
    Row weights;
    for (const WeightedOutput& out : list) weights.push_back(out.weight);
    Row all = outs;
    const Tensor dense = wide ? matrix(all, kRows * kPerRow)
                              : host_tensor(halves.data(), DType::kBf16, kRows * kPerRow, kD);
    y = base;
    combine_dense(stream, dense, weights.data(), matrix(y, kRows));
    CHECK(differences(y, expected) == 0);
  }
}

TEST_CASE("a cache of every type holds the nearest numbers") {
  for (const Family& f : cache_families()) {
    Row x = wild_row(64, 2);
    for (int i = 0; i < 4000; ++i)
      x.push_back(std::ldexp(1.0f + static_cast<float>(i % 97) / 97, i % 23 - 13));
    for (const float v : kHostile) x.push_back(v);
    const auto d = static_cast<std::int64_t>(x.size());
    const DType type = kv_type(f.numerics);
    Buffer bytes(x.size() * 3 * dtype_size(type));
    const KvPool pool{bytes.data(), type, 1, d + 2};
    const std::int32_t table[] = {1}, positions[] = {0};
    const std::int32_t* tables[] = {table};
    TestStream stream(f);
    store_kv(stream, pool, {tables, positions}, matrix(x, 1), 2);
    for (std::int64_t i = 0; i < d; ++i) {
      const std::size_t at = static_cast<std::size_t>(d + 2 + 2 + i) * dtype_size(type);
      float held = 0;
      if (type == DType::kF32) std::memcpy(&held, bytes.data() + at, 4);
      if (type == DType::kF8E4M3) held = e4m3_to_float(static_cast<std::uint8_t>(bytes.data()[at]));
      if (type == DType::kBf16) {
        Bf16 half;
        std::memcpy(&half, bytes.data() + at, 2);
        held = to_float(half);
      }
      CHECK(same_number(held, twin::cached(f.numerics, x[static_cast<std::size_t>(i)])));
    }
  }
}

TEST_CASE("rows that hold something else than numbers are marked once, by the first layer") {
  for (const Family& f : families())
    for (const std::int64_t d : {1, 7, 33, 576, 4096}) {
      CAPTURE(to_string(f));
      CAPTURE(d);
      constexpr std::int64_t kRows = 20;
      TestStream stream(f, 2);
      Row x(static_cast<std::size_t>(kRows * d), 3.4e38f);
      const float odd[] = {NAN, INFINITY, -INFINITY};
      std::vector<std::int32_t> first(kRows, kNeverBad), expected(kRows, kNeverBad);
      first[3] = expected[3] = 1;  // it is known already
      for (std::int64_t r = 3; r < kRows; r += 4) {
        x[static_cast<std::size_t>(r * d + r * 31 % d)] = odd[r % 3];
        if (r != 3) expected[static_cast<std::size_t>(r)] = 5;
      }
      bad_rows(stream, matrix(x, kRows), 5, first.data());
      CHECK(first == expected);
    }
}

TEST_CASE("small numbers: every code goes there and back") {
  for (int code = 0; code < 256; ++code) {
    const float value = e4m3_to_float(static_cast<std::uint8_t>(code));
    if (value != value) {
      CHECK((code & 0x7f) == 0x7f);
      CHECK(to_e4m3(value) == 0x7f);
    } else {
      CHECK(to_e4m3(value) == code);
      CHECK(same_number(twin::e4m3(value), value));
    }
  }
  for (const float v : wild_row(20000, 4)) {
    CHECK(same_number(to_float(to_bf16(v)), twin_bf(v)));
    CHECK(same_number(e4m3_to_float(to_e4m3(v)), twin::e4m3(v)));
  }
  for (int code = 0; code < 0x7c00; ++code) {
    const double exact = code < 0x400 ? std::ldexp(code, -24)
                                      : std::ldexp(0x400 + code % 0x400, code / 0x400 - 25);
    CHECK(static_cast<double>(f16_to_float(static_cast<std::uint16_t>(code))) == exact);
    CHECK(static_cast<double>(f16_to_float(static_cast<std::uint16_t>(code | 0x8000))) == -exact);
  }
  CHECK(f16_to_float(0x7c00) == INFINITY);
  CHECK(std::isnan(f16_to_float(0x7e00)));
}

}  // namespace
}  // namespace troupe::kernels
