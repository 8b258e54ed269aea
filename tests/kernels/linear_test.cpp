#include "kernels/linear.h"

#include "breakable_stream.h"
#include "product_support.h"

namespace troupe::kernels {
namespace {

std::vector<float> expected(const Family& f, const TestMatrix& m, const PackOptions& options,
                            const std::vector<float>& x, std::int64_t rows) {
  const TwinSum sum = {f.numerics, options.slices, options.full_precision,
                       m.codes == Codes::kF32};
  return twin_product(sum, m.values(), m.n, m.k, x, rows);
}

void check(const Family& f, const TestMatrix& m, const PackOptions& options, std::int64_t rows,
           int threads, const std::vector<float>& x) {
  INFO(to_string(f) << " " << to_string(m) << " slices " << options.slices << " full "
                    << options.full_precision << " rows " << rows << " threads " << threads);
  TestStream stream(f, threads);
  const auto y = product(stream, pack(f.numerics, m, options), x, rows);
  CHECK(differences(y, expected(f, m, options, x, rows)) == 0);
}

TEST_CASE("linear has the bits of its definition for every format, family and odd shape") {
  struct Shape {
    std::int64_t n, k;
    int slices;
  };
  unsigned seed = 1;
  for (const Family& f : families())
    for (const Shape& s : {Shape{1, 1, 1}, {3, 6, 1}, {33, 31, 1}, {32, 64, 1}, {40, 96, 1},
                           {65, 256, 8}, {100, 96, 8}, {70, 300, 2}, {130, 512, 4}, {7, 544, 1}})
      for (const TestMatrix& m : formats(s.n, s.k))
        for (const bool full : {false, true}) {
          const bool wild = seed % 3 == 0;
          const std::int64_t rows = 1 + seed % 5;
          Random random(seed);
          const auto x = wild ? random.wild_values(rows * s.k) : random.values(rows * s.k);
          check(f, filled(m, ++seed, wild), {s.slices, full}, rows, 1, x);
        }
}

TEST_CASE("a row has the same bits in any batch and on any number of threads") {
  constexpr std::int64_t kRows = 512, kN = 72, kK = 320;
  for (const Family& f : families())
    for (const TestMatrix& shape :
         {TestMatrix{Codes::kBf16, kN, kK}, TestMatrix{Codes::kF32, kN, kK},
          TestMatrix{Codes::kFp8, kN, kK, 128, 128},
          TestMatrix{Codes::kInt4, kN, kK, 1, 32, DType::kF16, true}})
      for (const PackOptions& options : {PackOptions{1, false}, {2, false}, {2, true}}) {
        const TestMatrix m = filled(shape, 5);
        const auto x = Random(6).values(kRows * kK);
        const Weight w = pack(f.numerics, m, options);
        const auto all = expected(f, m, options, x, kRows);
        for (int threads = 1; threads <= 4; threads += f.step_of_threads()) {
          TestStream stream(f, threads);
          for (const std::int64_t rows :
               {1, 2, 3, 5, 6, 7, 12, 13, 16, 17, 31, 33, 64, 100, 128, 129, 200, 512}) {
            if (rows > 130 && threads == 3) continue;
            INFO(to_string(f) << " " << to_string(m) << " rows " << rows << " threads " << threads
                              << " slices " << options.slices << " full "
                              << options.full_precision);
            const std::vector<float> some(all.begin(), all.begin() + rows * kN);
            CHECK(differences(product(stream, w, x, rows), some) == 0);
          }
        }
      }
}

TEST_CASE("slices that ranks sum apart and join as a tree give the bits of the whole") {
  constexpr std::int64_t kN = 70, kK = 8 * 64, kRows = 5;
  for (const Family& f : families())
    for (const TestMatrix& shape : {TestMatrix{Codes::kBf16, kN, kK},
                                    TestMatrix{Codes::kFp8, kN, kK, 1, 32, DType::kBf16}}) {
      INFO(to_string(f) << " " << to_string(shape));
      const TestMatrix m = filled(shape, 7);
      const auto x = Random(8).values(kRows * kK);
      TestStream stream(f);
      const auto whole = product(stream, pack(f.numerics, m, {8}), x, kRows);
      for (const int ranks : {2, 4, 8}) {
        std::vector<std::vector<float>> parts;
        const std::int64_t part_k = kK / ranks;
        for (int rank = 0; rank < ranks; ++rank) {
          TestMatrix own = shape;
          own.k = part_k;
          const std::int64_t first = rank * part_k;
          for (std::int64_t i = 0; i < kN; ++i) {
            const auto* row = m.data.data() + i * m.row_bytes() + first * code_bits(m.codes) / 8;
            own.data.insert(own.data.end(), row, row + own.row_bytes());
            if (m.block_k == 0) continue;
            const auto* scales = m.scale_data.data() + (i * (kK / 32) + first / 32) * 2;
            own.scale_data.insert(own.scale_data.end(), scales, scales + part_k / 32 * 2);
          }
          std::vector<float> own_x;
          for (std::int64_t r = 0; r < kRows; ++r)
            own_x.insert(own_x.end(), x.begin() + r * kK + first,
                         x.begin() + r * kK + first + part_k);
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

TEST_CASE("groups are products side by side, of parts of heads, also of a transposed weight") {
  constexpr std::int64_t kHeads = 5, kK = 48, kN = 40, kRows = 9;
  for (const Family& f : families())
    for (const bool full : {false, true}) {
      INFO(to_string(f) << " full " << full);
      const PackOptions options = {1, full};
      const StoredMatrix stored = {Codes::kBf16, kN, kK, {}};
      auto straight = WeightPacker::begin(f.numerics, stored, options, kHeads);
      auto turned = WeightPacker::begin(f.numerics, stored, options, kHeads);
      REQUIRE(straight.ok());
      REQUIRE(turned.ok());
      std::vector<Weight> single;
      for (unsigned h = 0; h < kHeads; ++h) {
        const TestMatrix m = filled({Codes::kBf16, kN, kK}, 10 + h);
        straight->add(m.data.data(), kN);
        std::vector<std::byte> columns(m.data.size());
        for (std::int64_t i = 0; i < kN; ++i)
          for (std::int64_t j = 0; j < kK; ++j)
            std::memcpy(columns.data() + (j * kN + i) * 2, m.data.data() + (i * kK + j) * 2, 2);
        turned->add_transposed(columns.data(), kN * 2);
        single.push_back(pack(f.numerics, m, options));
      }
      const Weight w = straight->take(), t = turned->take();
      CHECK(std::memcmp(w.memory().data(), t.memory().data(), w.bytes()) == 0);
      CHECK(w.bytes() == packed_bytes(f.numerics, stored, options, kHeads));
      // The heads' inputs are the tails of wider heads, as the part of q without position is.
      auto x = Random(9).values(kRows * kHeads * (kK + 8));
      const Tensor in = host_tensor(x.data(), DType::kF32, kRows, kHeads * (kK + 8))
                            .split(kHeads)
                            .columns(8, kK);
      TestStream stream(f, 3);
      Stream::Scope scope(stream);
      const Tensor y = stream.stream.alloc_heads(kRows, kHeads, kN);
      linear(stream, w, prepare(stream, in, w), y);
      for (std::int64_t h = 0; h < kHeads; ++h)
        for (std::int64_t r = 0; r < kRows; ++r) {
          const auto* from = x.data() + (r * kHeads + h) * (kK + 8) + 8;
          const auto* got = static_cast<const float*>(y.data) + (r * kHeads + h) * kN;
          const auto one = product(stream, single[static_cast<std::size_t>(h)],
                                   std::vector<float>(from, from + kK), 1);
          CHECK(differences(one, std::vector<float>(got, got + kN)) == 0);
        }
    }
}

TEST_CASE("rows may be more than a GPU counts CTAs by in any but its first dimension") {
  constexpr std::int64_t kN = 3, kK = 8, kSome = 64, kRows = 8 * 65536 + 5;
  for (const Family& f : families()) {
    INFO(to_string(f));
    const Weight w = pack(f.numerics, filled({Codes::kBf16, kN, kK}, 3), {});
    const auto x = Random(4).values(kRows * kK);
    TestStream stream(f, 2);
    const auto all = product(stream, w, x, kRows);
    const std::vector<float> last(all.end() - kSome * kN, all.end());
    CHECK(differences(product(stream, w, {x.end() - kSome * kK, x.end()}, kSome), last) == 0);
  }
}

TEST_CASE("a bias is added last, and activations may come as bf16") {
  constexpr std::int64_t kN = 50, kK = 70, kRows = 4;
  for (const Family& f : families()) {
    INFO(to_string(f));
    TestStream stream(f);
    const Weight w = pack(f.numerics, filled({Codes::kBf16, kN, kK}, 20));
    auto x = Random(21).values(kRows * kK);
    const auto bias = Random(22).values(kN);
    std::vector<std::uint16_t> halves;
    for (float& v : x) {
      v = twin_bf(v);
      halves.push_back(static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(v) >> 16));
    }
    auto plain = product(stream, w, x, kRows);
    std::vector<float> y(kRows * kN);
    Stream::Scope scope(stream);
    const Activation prepared =
        prepare(stream, host_tensor(halves.data(), DType::kBf16, kRows, kK), w);
    linear(stream, w, prepared, host_tensor(y.data(), DType::kF32, kRows, kN));
    CHECK(differences(y, plain) == 0);
    for (std::size_t i = 0; i < plain.size(); ++i) plain[i] += bias[i % kN];
    CHECK(differences(product(stream, w, x, kRows, bias.data()), plain) == 0);
  }
}

TEST_CASE("a NaN or an infinity stays in its row") {
  constexpr std::int64_t kN = 64, kK = 96, kRows = 4;
  for (const Family& f : families())
    for (const bool full : {false, true}) {
      TestStream stream(f);
      const Weight w = pack(f.numerics, filled({Codes::kBf16, kN, kK}, 11), {1, full});
      const auto x = Random(12).values(kRows * kK);
      const auto clean = product(stream, w, x, kRows);
      auto dirty = x;
      dirty[kK + 3] = std::nanf("");
      dirty[2 * kK + 50] = INFINITY;
      const auto y = product(stream, w, dirty, kRows);
      for (std::size_t i = 0; i < kN; ++i) {
        CHECK(same_number(y[i], clean[i]));
        CHECK(same_number(y[3 * kN + i], clean[3 * kN + i]));
        CHECK(std::isnan(y[kN + i]));
        CHECK(!std::isfinite(y[2 * kN + i]));
      }
    }
}

TEST_CASE("products allocate nothing once they are warm, and spoil an answer if a test wants it") {
  for (const Family& f : families()) {
    BreakableStream stream(f, 2);
    const Weight w = pack(f.numerics, filled({Codes::kFp8, 64, 256, 128, 128}, 13));
    const auto x = Random(14).values(64 * 256);
    const auto clean = product(stream, w, x, 64);
    const std::size_t bytes = stream.stream.scratch().bytes();
    CHECK(differences(product(stream, w, x, 64), clean) == 0);
    CHECK(stream.stream.scratch().bytes() == bytes);
    stream.fault = "linear";
    auto spoilt = product(stream, w, x, 64);
    CHECK(differences(spoilt, clean) == 1);
    CHECK(!same_number(spoilt[0], clean[0]));
  }
}

}  // namespace
}  // namespace troupe::kernels
