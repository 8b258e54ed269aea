#pragma once

#include <doctest/doctest.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "families.h"
#include "kernels/linear.h"
#include "twin_products.h"

/// What tests of weights and products share.
namespace troupe::kernels {

/// A stream with threads of its own.
struct TestStream {
  explicit TestStream(const Family& f, int threads = 1) : pool(threads), stream(f.options(&pool)) {}
  operator Stream&() { return stream; }

  ThreadPool pool;
  Stream stream;
};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}

  std::uint32_t bits() { return static_cast<std::uint32_t>(engine_()); }
  /// -1 to 1. The generator's bits are standardised, the library's distributions are not.
  float value() {
    return static_cast<float>(static_cast<int>(bits() >> 8) - (1 << 23)) / (1 << 23);
  }
  /// Any size, around the smallest normal number too.
  float wild() {
    switch (bits() % 8) {
      case 0: return 0;
      case 1: return std::ldexp(value(), -60);
      case 2: return std::ldexp(value(), -120);
      case 3: return std::ldexp(value(), 60);
      default: return value();
    }
  }
  std::vector<float> values(std::int64_t count) {
    std::vector<float> v;
    for (std::int64_t i = 0; i < count; ++i) v.push_back(value());
    return v;
  }
  std::vector<float> wild_values(std::int64_t count) {
    std::vector<float> v;
    for (std::int64_t i = 0; i < count; ++i) v.push_back(wild());
    return v;
  }

 private:
  std::mt19937 engine_;
};

/// A matrix as a checkpoint has it.
struct TestMatrix {
  Codes codes = Codes::kBf16;
  std::int64_t n = 0, k = 0, block_n = 1, block_k = 0;  ///< block_k 0: no scales
  DType scale_dtype = DType::kF32;
  bool zeros = false;

  std::vector<std::byte> data = {}, scale_data = {};
  std::vector<std::uint8_t> zero_data = {};

  std::int64_t row_bytes() const { return k * code_bits(codes) / 8; }
  StoredMatrix stored() const {
    StoredMatrix m = {codes, n, k, {}};
    if (block_k == 0) return m;
    m.scales = {scale_data.data(), scale_dtype, block_n, block_k,
                zeros ? zero_data.data() : nullptr};
    return m;
  }
  std::vector<float> values() const { return twin_values(stored(), data.data()); }
};

template <class T>
void append(std::vector<std::byte>& to, T value) {
  const auto* bytes = reinterpret_cast<const std::byte*>(&value);
  to.insert(to.end(), bytes, bytes + sizeof value);
}

inline void append_number(std::vector<std::byte>& to, DType dtype, Random& random, bool wild) {
  const float value = wild ? random.wild() : random.value();
  switch (dtype) {
    case DType::kF32: return append(to, value);
    case DType::kBf16:
      return append(to, static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(value) >> 16));
    case DType::kF8E8M0:
      return append(to, static_cast<std::uint8_t>(wild ? random.bits() % 255
                                                       : 120 + random.bits() % 10));
    default: break;
  }
  // A float16: any finite one, subnormal ones too; the tame are 1/8 to 2.
  const std::uint32_t bits = random.bits();
  const std::uint32_t exponent = wild ? bits >> 16 & 15 : 12 + (bits >> 16 & 3);
  append(to, static_cast<std::uint16_t>((bits & 0x83ff) | exponent << 10));
}

/// Fills the codes and scales of a matrix.
inline TestMatrix filled(TestMatrix m, unsigned seed, bool wild = false) {
  Random random(seed);
  const std::int64_t count = m.n * m.k;
  for (std::int64_t i = 0; i < count; ++i) switch (m.codes) {
      case Codes::kF32: append_number(m.data, DType::kF32, random, wild); break;
      case Codes::kBf16: append_number(m.data, DType::kBf16, random, wild); break;
      case Codes::kF16: append_number(m.data, DType::kF16, random, wild); break;
      case Codes::kFp8: {
        const std::uint32_t code = random.bits() & 0xff;
        m.data.push_back(static_cast<std::byte>((code & 0x7f) == 0x7f ? code - 1 : code));
        break;
      }
      default:
        if (i % 2 == 0) m.data.push_back(static_cast<std::byte>(random.bits() & 0xff));
    }
  if (m.block_k == 0) return m;
  const std::int64_t scales =
      ((m.n + m.block_n - 1) / m.block_n) * ((m.k + m.block_k - 1) / m.block_k);
  for (std::int64_t i = 0; i < scales; ++i) {
    append_number(m.scale_data, m.scale_dtype, random, wild);
    m.zero_data.push_back(static_cast<std::uint8_t>(random.bits() & 15));
  }
  return m;
}

/// Every way in which published checkpoints store a matrix, and some that fit no layout.
inline std::vector<TestMatrix> formats(std::int64_t n, std::int64_t k) {
  std::vector<TestMatrix> all = {
      {Codes::kF32, n, k},
      {Codes::kBf16, n, k},
      {Codes::kF16, n, k},
      {Codes::kFp8, n, k},
      {Codes::kFp8, n, k, 128, 128},
      {Codes::kFp8, n, k, 32, 64, DType::kBf16},
      {Codes::kFp8, n, k, 48, 40},
      {Codes::kFp8, n, k, 1, k, DType::kBf16},
      {Codes::kFp8, n, k, 1, 64, DType::kF16},
  };
  if (k % 2 != 0) return all;
  for (const std::int64_t group : {32, 64, 128}) {
    all.push_back({Codes::kInt4, n, k, 1, group, DType::kBf16});
    all.push_back({Codes::kInt4, n, k, 1, group, DType::kF16, true});
  }
  all.push_back({Codes::kInt4, n, k, 64, 96, DType::kF32, true});
  all.push_back({Codes::kInt4, n, k, 1, 24, DType::kF16});
  all.push_back({Codes::kInt4, n, k});
  // As what was turned.
  all.push_back({Codes::kFp8, n, k, 64, 1, DType::kBf16});
  all.push_back({Codes::kFp8, n, k, n, 1});
  all.push_back({Codes::kInt4, n, k, 128, 1, DType::kBf16});
  all.push_back({Codes::kInt4, n, k, 32, 1, DType::kF16, true});
  all.push_back({Codes::kFp4, n, k, 1, 32, DType::kF8E8M0});
  all.push_back({Codes::kFp4, n, k, 128, 32, DType::kF8E8M0});
  all.push_back({Codes::kFp4, n, k, 1, 128, DType::kF32});
  return all;
}

inline std::string to_string(const TestMatrix& m) {
  return "codes " + std::to_string(static_cast<int>(m.codes)) + " [" + std::to_string(m.n) + ", " +
         std::to_string(m.k) + "] scales " + std::string(troupe::to_string(m.scale_dtype)) + " " +
         std::to_string(m.block_n) + " x " + std::to_string(m.block_k) +
         (m.zeros ? " zeros" : "");
}

inline Weight pack(Numerics numerics, const TestMatrix& m, const PackOptions& options = {}) {
  const StoredMatrix stored = m.stored();
  auto packer = WeightPacker::begin(numerics, stored, options);
  REQUIRE(packer.ok());
  packer->add(m.data.data(), m.n);
  Weight w = packer->take();
  CHECK(w.bytes() == packed_bytes(numerics, stored, options));
  return w;
}

/// x [rows, k] W^T, [rows, n]; a gap behind each row shows writes beyond the columns.
inline std::vector<float> product(Stream& stream, const Weight& w, const std::vector<float>& x,
                                  std::int64_t rows, const float* bias = nullptr) {
  const std::int64_t n = w.n(), k = w.k();
  std::vector<float> y(static_cast<std::size_t>(rows * (n + 3)), 7.0f), dense;
  Tensor out = host_tensor(y.data(), DType::kF32, rows, n);
  out.row_stride = n + 3;
  Stream::Scope scope(stream);
  const Tensor in = host_tensor(const_cast<float*>(x.data()), DType::kF32, rows, k);
  linear(stream, w, prepare(stream, in, w), out, bias);
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n + 3; ++i) {
      const float value = y[static_cast<std::size_t>(r * (n + 3) + i)];
      if (i < n) dense.push_back(value);
      else CHECK(value == 7.0f);
    }
  return dense;
}

/// The bits that are defined: not a NaN's payload, not a zero's sign, not what is within an ulp of
/// the smallest normal number.
inline bool same_number(float a, float b) {
  if (std::isnan(a) || std::isnan(b)) return std::isnan(a) && std::isnan(b);
  constexpr float kSmallest = 0x1.000002p-126f;
  if (std::fabs(a) <= kSmallest && std::fabs(b) <= kSmallest) return true;
  return std::bit_cast<std::uint32_t>(a) == std::bit_cast<std::uint32_t>(b);
}

/// How many of two lists differ.
inline std::size_t differences(const std::vector<float>& a, const std::vector<float>& b) {
  REQUIRE(a.size() == b.size());
  std::size_t count = 0;
  for (std::size_t i = 0; i < a.size(); ++i) count += same_number(a[i], b[i]) ? 0 : 1;
  return count;
}

inline std::vector<float> twin_product(const TwinSum& sum, std::vector<float> w, std::int64_t n,
                                       std::int64_t k, std::vector<float> x, std::int64_t rows) {
  // What is rounded for every output is rounded soon where it is before.
  if (sum.numerics != Numerics::kReference && !sum.full_precision)
    for (std::vector<float>* v : {&w, &x})
      for (float& value : *v) value = twin_bf(value);
  std::vector<float> y;
  for (std::int64_t r = 0; r < rows; ++r)
    for (std::int64_t i = 0; i < n; ++i) y.push_back(sum(x.data() + r * k, w.data() + i * k, k));
  return y;
}

}  // namespace troupe::kernels
