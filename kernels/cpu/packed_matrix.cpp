#include "kernels/packed_matrix.h"

#include <emmintrin.h>

#include <algorithm>
#include <bit>
#include <cassert>
#include <cstring>
#include <new>
#include <string>

#include "runtime/bf16.h"

namespace troupe::kernels {
namespace {

WeightType packed_type(Numerics numerics, WeightType source, bool full_precision) {
  const bool rounds = numerics == Numerics::kAvx512Bf16 || numerics == Numerics::kAmxBf16;
  return rounds && !full_precision ? WeightType::kBf16 : source;
}

Bf16 as_bf16(Bf16 x) { return x; }
Bf16 as_bf16(float x) { return to_bf16(x); }

/// A slice of a panel: where it begins in the source and how large it is.
struct Piece {
  std::int64_t first_n, columns, first_k, k;
};

/// A matrix may lie anywhere, not aligned to its elements.
template <class T>
T element(const WeightSource& s, std::int64_t n, std::int64_t k) {
  T value;
  std::memcpy(&value,
              static_cast<const std::byte*>(s.data) +
                  (n * s.stride_n + k * s.stride_k) * static_cast<std::int64_t>(sizeof(T)),
              sizeof(T));
  return value;
}

/// One slice of one panel as pairs of k. The destination is zeroed.
template <class T>
void pack_pairs(const WeightSource& s, const Piece& p, Bf16* out) {
  const auto put = [&](std::int64_t c, std::int64_t i) {
    out[(i / 2) * kPanel * 2 + c * 2 + i % 2] =
        as_bf16(element<T>(s, p.first_n + c, p.first_k + i));
  };
  // The source is read along its shorter stride.
  if (s.stride_n < s.stride_k) {
    for (std::int64_t i = 0; i < p.k; ++i)
      for (std::int64_t c = 0; c < p.columns; ++c) put(c, i);
  } else {
    for (std::int64_t c = 0; c < p.columns; ++c)
      for (std::int64_t i = 0; i < p.k; ++i) put(c, i);
  }
}

void pack_f32(const WeightSource& s, const Piece& p, float* out) {
  for (std::int64_t c = 0; c < p.columns; ++c)
    for (std::int64_t i = 0; i < p.k; ++i)
      out[i * kPanel + c] = element<float>(s, p.first_n + c, p.first_k + i);
}

__m128i load4(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

/// out[i][column..column + 3] = rows[column..][i] for `count` dwords of four rows `stride` bytes
/// apart: a pair of bf16 or a float32 moves as one dword.
void transpose_four(const std::byte* rows, std::int64_t stride, std::int64_t count,
                    std::uint32_t* out) {
  std::int64_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const std::byte* at = rows + i * 4;
    const __m128i a = load4(at), b = load4(at + stride);
    const __m128i c = load4(at + 2 * stride), d = load4(at + 3 * stride);
    const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
    const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
    const __m128i result[4] = {
        _mm_unpacklo_epi64(ab_low, cd_low), _mm_unpackhi_epi64(ab_low, cd_low),
        _mm_unpacklo_epi64(ab_high, cd_high), _mm_unpackhi_epi64(ab_high, cd_high)};
    for (std::int64_t j = 0; j < 4; ++j)
      _mm_store_si128(reinterpret_cast<__m128i*>(out + (i + j) * kPanel), result[j]);
  }
  for (; i < count; ++i)
    for (std::int64_t c = 0; c < 4; ++c)
      std::memcpy(out + i * kPanel + c, rows + c * stride + i * 4, 4);
}

/// Whole panels of dense rows, the common case, move four columns at a time.
bool pack_dwords(const WeightSource& s, const Piece& p, std::byte* out) {
  const auto size = static_cast<std::int64_t>(weight_size(s.type));
  if (s.stride_k != 1 || p.columns != kPanel || p.k * size % 4 != 0) return false;
  const auto* rows = static_cast<const std::byte*>(s.data) +
                     (p.first_n * s.stride_n + p.first_k) * size;
  // A part of the rows at a time, so that what is written together stays in the first-level cache.
  constexpr std::int64_t kPart = 128;
  const std::int64_t count = p.k * size / 4;
  for (std::int64_t i = 0; i < count; i += kPart)
    for (std::int64_t c = 0; c < kPanel; c += 4)
      transpose_four(rows + c * s.stride_n * size + i * 4, s.stride_n * size,
                     std::min(kPart, count - i),
                     reinterpret_cast<std::uint32_t*>(out) + i * kPanel + c);
  return true;
}

void pack_piece(const WeightSource& s, const Piece& p, WeightType type, std::byte* out) {
  if (type == s.type && pack_dwords(s, p, out)) return;
  if (type == WeightType::kF32)
    pack_f32(s, p, reinterpret_cast<float*>(out));
  else if (s.type == WeightType::kF32)
    pack_pairs<float>(s, p, reinterpret_cast<Bf16*>(out));
  else
    pack_pairs<Bf16>(s, p, reinterpret_cast<Bf16*>(out));
}

std::string shape(std::int64_t n, std::int64_t k) {
  return "[" + std::to_string(n) + ", " + std::to_string(k) + "]";
}

}  // namespace

std::size_t packed_bytes(Numerics numerics, WeightType source_type, std::int64_t n, std::int64_t k,
                         const PackOptions& options) {
  const WeightType type = packed_type(numerics, source_type, options.full_precision);
  const std::int64_t panels = (n + kPanel - 1) / kPanel;
  const std::int64_t slice = PackedMatrix::padded(type, k / options.slices);
  return static_cast<std::size_t>(panels * kPanel * slice * options.slices) * weight_size(type);
}

Result<MatrixPacker> MatrixPacker::begin(Numerics numerics, const Shape& s,
                                         const PackOptions& options) {
  if (s.n < 1 || s.k < 1 || s.n > limits::kDimensionMax || s.k > limits::kDimensionMax)
    return invalid_argument("A weight of shape " + shape(s.n, s.k) +
                            " cannot be packed; check the model's config.json.");
  if (options.slices < 1 || options.slices > limits::kSumSlices ||
      !std::has_single_bit(static_cast<unsigned>(options.slices)) || s.k % options.slices != 0)
    return invalid_argument("A weight of shape " + shape(s.n, s.k) + " cannot be summed as " +
                            std::to_string(options.slices) + " slices; use sum_slices().");
  MatrixPacker packer;
  PackedMatrix& m = packer.matrix_;
  m.n_ = s.n;
  m.k_ = s.k;
  m.slices_ = options.slices;
  m.full_precision_ = options.full_precision;
  m.type_ = packed_type(numerics, s.type, options.full_precision);
  m.numerics_ = numerics;
  try {
    m.data_ = Buffer(packed_bytes(numerics, s.type, s.n, s.k, options));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("There is no memory for a weight of shape " + shape(s.n, s.k) +
                              "; give the worker less to hold.");
  }
  return packer;
}

std::span<const std::byte> MatrixPacker::add(const WeightSource& rows) {
  PackedMatrix& m = matrix_;
  assert(rows.k == m.k_ && rows_ % kPanel == 0 && rows_ + rows.n <= m.n_);
  const std::int64_t slice = m.slice_k();
  const std::size_t slice_bytes =
      static_cast<std::size_t>(m.slice_k_padded() * kPanel) * weight_size(m.type_);
  std::byte* const begin =
      m.data_.data() + static_cast<std::size_t>(rows_ / kPanel) * m.panel_bytes();
  std::byte* out = begin;
  for (std::int64_t first = 0; first < rows.n; first += kPanel)
    for (int i = 0; i < m.slices_; ++i, out += slice_bytes)
      pack_piece(rows, {first, std::min(kPanel, rows.n - first), i * slice, slice}, m.type_, out);
  rows_ += rows.n;
  return {begin, out};
}

Result<PackedMatrix> pack_matrix(Numerics numerics, const WeightSource& source,
                                 const PackOptions& options) {
  auto packer = MatrixPacker::begin(numerics, {source.type, source.n, source.k}, options);
  if (!packer) return packer.error();
  packer->add(source);
  return packer->take();
}

}  // namespace troupe::kernels
