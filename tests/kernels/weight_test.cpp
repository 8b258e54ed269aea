#include "kernels/weight.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "product_support.h"

namespace troupe::kernels {
namespace {

/// The same weights as plain bf16 (float32 under `reference`).
TestMatrix decoded(Numerics numerics, const TestMatrix& m) {
  const bool wide = numerics == Numerics::kReference;
  TestMatrix plain = {wide ? Codes::kF32 : Codes::kBf16, m.n, m.k};
  plain.data.resize(static_cast<std::size_t>(m.n * plain.row_bytes()));
  // In two goes: rows need not begin at the first.
  const std::int64_t half = m.n / 2;
  decode_rows(numerics, m.stored(), m.data.data(), 0, half, plain.data.data());
  decode_rows(numerics, m.stored(), m.data.data() + half * m.row_bytes(), half, m.n - half,
              plain.data.data() + half * plain.row_bytes());
  return plain;
}

TEST_CASE("decode_rows gives the numbers of the definition, wild scales too") {
  unsigned seed = 1;
  for (const TestMatrix& shape : formats(70, 160)) {
    const TestMatrix m = filled(shape, ++seed, true);
    INFO(to_string(m));
    const auto exact = m.values();
    const TestMatrix f32 = decoded(Numerics::kReference, m), bf16 = decoded(Numerics::kBf16, m);
    const auto wide = f32.values(), narrow = bf16.values();
    std::vector<float> rounded;
    for (const float x : exact) rounded.push_back(twin_bf(x));
    CHECK(differences(wide, exact) == 0);
    CHECK(differences(narrow, rounded) == 0);
  }
}

TEST_CASE("a quantised weight gives the bits of the numbers that it means") {
  unsigned seed = 100;
  for (const Family& f : families())
    for (const auto& [n, k, slices] : {std::tuple{96, 256, 1}, {70, 512, 8}, {33, 160, 1}})
      for (const TestMatrix& shape : formats(n, k))
        for (const bool wild : {false, true}) {
          const TestMatrix m = filled(shape, ++seed, wild);
          INFO(to_string(f) << " " << to_string(m) << " wild " << wild);
          const auto x = Random(seed).values(3 * k);
          TestStream stream(f);
          const auto a = product(stream, pack(f.numerics, m, {slices}), x, 3);
          const auto b =
              product(stream, pack(f.numerics, decoded(f.numerics, m), {slices}), x, 3);
          CHECK(differences(a, b) == 0);
        }
}

/// As `transposed` has it: rows are the groups' columns.
Weight pack_groups(Numerics numerics, const TestMatrix& group, std::int64_t groups,
                   const TestMatrix& all, bool transposed) {
  StoredMatrix stored = all.stored();
  stored.n = group.n;
  stored.k = group.k;
  auto packer = WeightPacker::begin(numerics, stored, {}, groups);
  REQUIRE(packer.ok());
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::byte* from = all.data.data() + g * group.n * group.row_bytes();
    if (transposed) packer->add_transposed(from, group.n * code_bits(group.codes) / 8);
    else packer->add(from, group.n);
  }
  return packer->take();
}

/// The same numbers, rows as columns.
TestMatrix turned(const TestMatrix& m) {
  TestMatrix t = m;
  std::swap(t.n, t.k);
  std::ranges::fill(t.data, std::byte{});
  const std::int64_t bits = code_bits(m.codes);
  for (std::int64_t i = 0; i < m.n; ++i)
    for (std::int64_t j = 0; j < m.k; ++j)
      for (std::int64_t b = 0; b < bits; ++b) {
        const std::int64_t from = (i * m.k + j) * bits + b, to = (j * m.n + i) * bits + b;
        t.data[static_cast<std::size_t>(to / 8)] |=
            (m.data[static_cast<std::size_t>(from / 8)] >> (from % 8) & std::byte{1}) << (to % 8);
      }
  return t;
}

TEST_CASE("groups have scales of their own, and may come turned") {
  unsigned seed = 300;
  constexpr std::int64_t kGroups = 3, kN = 64, kK = 96;
  for (const TestMatrix& shape : formats(kN, kK)) {
    if (shape.block_k > 0 && kN % shape.block_n != 0) continue;
    TestMatrix tall = shape;
    tall.n = kGroups * kN;
    const TestMatrix all = filled(tall, ++seed);
    INFO(to_string(all));
    const Weight w = pack_groups(Numerics::kBf16, shape, kGroups, all, false);
    const std::size_t bytes = w.bytes() / kGroups;
    TestMatrix columns = all;
    columns.data.clear();
    for (std::int64_t g = 0; g < kGroups; ++g) {
      const std::size_t codes = static_cast<std::size_t>(kN * shape.row_bytes());
      const std::size_t scales = all.scale_data.size() / kGroups, zeros = all.zero_data.size() / 3;
      const auto part = [&](const auto& from, std::size_t size) {
        const auto begin = from.begin() + static_cast<std::ptrdiff_t>(size) * g;
        const auto end = begin + static_cast<std::ptrdiff_t>(size);
        return std::remove_cvref_t<decltype(from)>(begin, end);
      };
      TestMatrix one = shape;
      one.data = part(all.data, codes);
      one.scale_data = part(all.scale_data, scales);
      one.zero_data = part(all.zero_data, zeros);
      const Weight alone = pack(Numerics::kBf16, one);
      CHECK(std::memcmp(w.memory().data() + static_cast<std::size_t>(g) * bytes,
                        alone.memory().data(), bytes) == 0);
      const TestMatrix across = turned(one);
      columns.data.insert(columns.data.end(), across.data.begin(), across.data.end());
    }
    const Weight same = pack_groups(Numerics::kBf16, shape, kGroups, columns, true);
    CHECK(std::memcmp(same.memory().data(), w.memory().data(), w.bytes()) == 0);
  }
}

TEST_CASE("weights are held at their stored width where the layout fits") {
  constexpr std::size_t kCount = 256 * 1024;
  const auto bytes = [](const TestMatrix& m, const PackOptions& options = {}) {
    return packed_bytes(Numerics::kBf16, filled(m, 1).stored(), options);
  };
  CHECK(bytes({Codes::kBf16, 256, 1024}) == kCount * 2);
  CHECK(bytes({Codes::kF32, 256, 1024}) == kCount * 2);
  CHECK(bytes({Codes::kF32, 256, 1024}, {1, true}) == kCount * 4);
  CHECK(bytes({Codes::kFp8, 256, 1024, 128, 128}) == kCount + 8 * 64);
  CHECK(bytes({Codes::kFp8, 256, 1024, 128, 100}) == kCount * 2);
  CHECK(bytes({Codes::kFp8, 256, 1024, 1024, 1}) == kCount + 8 * 1024 * 4);
  CHECK(bytes({Codes::kInt4, 256, 1024, 128, 1, DType::kBf16}) == kCount / 2 + 8 * 1024 * 2);
  CHECK(bytes({Codes::kInt4, 256, 1024, 1, 32, DType::kBf16}) == kCount / 2 + kCount / 32 * 2);
  CHECK(bytes({Codes::kInt4, 256, 1024, 1, 128, DType::kF16, true}) ==
        kCount / 2 + kCount / 128 * 2 + kCount / 128 / 2);
  CHECK(bytes({Codes::kFp4, 256, 1024, 1, 32, DType::kF8E8M0}) == kCount / 2 + kCount / 32);
}

TEST_CASE("rows may come a few at a time and lie anywhere in a file") {
  for (const TestMatrix& shape : formats(100, 64)) {
    const TestMatrix m = filled(shape, 3);
    INFO(to_string(m));
    const Weight whole = pack(Numerics::kBf16, m);
    const std::int64_t stride = m.row_bytes() + 5;
    std::vector<std::byte> file(static_cast<std::size_t>(m.n * stride + 1));
    for (std::int64_t r = 0; r < m.n; ++r)
      std::memcpy(file.data() + 1 + r * stride, m.data.data() + r * m.row_bytes(),
                  static_cast<std::size_t>(m.row_bytes()));
    const StoredMatrix stored = m.stored();
    auto packer = WeightPacker::begin(Numerics::kBf16, stored);
    REQUIRE(packer.ok());
    for (std::int64_t r = 0; r < m.n; r += 64)
      packer->add(file.data() + 1 + r * stride, std::min<std::int64_t>(64, m.n - r), stride);
    const Weight w = packer->take();
    CHECK(std::memcmp(w.memory().data(), whole.memory().data(), w.bytes()) == 0);
  }
}

TEST_CASE("vectors are float32, rows of a table stay as they are") {
  for (const Codes codes : {Codes::kF32, Codes::kBf16, Codes::kF16}) {
    const TestMatrix m = filled({codes, 1, 77}, 4);
    for (const Numerics numerics : {Numerics::kReference, Numerics::kBf16}) {
      const Weight w = pack(numerics, m, {1, false, true});
      const float* v = vector_of(w);
      CHECK(differences(std::vector<float>(v, v + 77), m.values()) == 0);
    }
  }
  const TestMatrix table = filled({Codes::kBf16, 40, 24}, 5);
  const Weight w = pack(Numerics::kBf16, table, {1, false, true});
  CHECK(w.bytes() == table.data.size());
  CHECK(std::memcmp(w.memory().data(), table.data.data(), w.bytes()) == 0);
}

TEST_CASE("impossible weights are refused") {
  const auto refused = [](const TestMatrix& m, const PackOptions& options = {}) {
    return !WeightPacker::begin(Numerics::kBf16, m.stored(), options).ok();
  };
  CHECK(refused({Codes::kF32, 0, 4}));
  CHECK(refused({Codes::kF32, 1, -1}));
  CHECK(refused({Codes::kF32, 1, 4}, {3}));
  CHECK(refused({Codes::kF32, 1, 4}, {8}));
  CHECK(refused({Codes::kInt4, 1, 5}));
  CHECK(refused(filled({Codes::kBf16, 4, 4, 1, 2}, 1)));
  CHECK(refused(filled({Codes::kFp8, 4, 4, 1, 2, DType::kI32}, 1)));
  CHECK(refused(filled({Codes::kFp8, 4, 4, 1, 2, DType::kF32, true}, 1)));
  CHECK(sum_slices(2048) == 8);
  CHECK(sum_slices(100) == 4);
  CHECK(sum_slices(33) == 1);
}

}  // namespace
}  // namespace troupe::kernels
