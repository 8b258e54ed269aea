#include "kernels/weight.h"

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
