#include <emmintrin.h>

#include <algorithm>
#include <cassert>
#include <cstring>

#include "kernels/cpu/weight_decode.h"
#include "kernels/cpu/weight_layout.h"
#include "kernels/weight.h"
#include "runtime/float_mode.h"

namespace troupe::kernels {
namespace {

constexpr std::int64_t kOutputs = WeightLayout::kOutputs, kBlock = WeightLayout::kBlock;
constexpr std::int64_t kPiece = 256;  ///< k at a time, so that 32 rows stay in the nearest cache

/// Up to 32 rows of up to kPiece elements, as the tiles hold them, padded by zeros.
struct Piece {
  alignas(64) std::uint32_t dwords[kOutputs][kPiece];
};

__m128i load4(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}

/// Of four dwords of four FP8: the first two codes of each, then the last two.
__m128i pairs_first(__m128i x) {
  x = _mm_shufflelo_epi16(x, _MM_SHUFFLE(3, 1, 2, 0));
  x = _mm_shufflehi_epi16(x, _MM_SHUFFLE(3, 1, 2, 0));
  return _mm_shuffle_epi32(x, _MM_SHUFFLE(3, 1, 2, 0));
}

/// One block: the first `count` dwords of 32 rows become rows of the two tiles.
void transpose_block(const std::byte* rows, std::int64_t row_bytes, std::int64_t count, bool pairs,
                     std::byte* out) {
  for (std::int64_t o = 0; o < kOutputs; o += 4) {
    const std::byte* const four = rows + o * row_bytes;
    std::byte* const tile = out + o / 16 * count * 64 + o % 16 * 4;
    for (std::int64_t i = 0; i < count; i += 4) {
      const __m128i a = load4(four + i * 4);
      const __m128i b = load4(four + row_bytes + i * 4);
      const __m128i c = load4(four + 2 * row_bytes + i * 4);
      const __m128i d = load4(four + 3 * row_bytes + i * 4);
      const __m128i ab_low = _mm_unpacklo_epi32(a, b), ab_high = _mm_unpackhi_epi32(a, b);
      const __m128i cd_low = _mm_unpacklo_epi32(c, d), cd_high = _mm_unpackhi_epi32(c, d);
      const __m128i rows[4] = {
          _mm_unpacklo_epi64(ab_low, cd_low), _mm_unpackhi_epi64(ab_low, cd_low),
          _mm_unpacklo_epi64(ab_high, cd_high), _mm_unpackhi_epi64(ab_high, cd_high)};
      for (std::int64_t j = 0; j < 4; ++j)
        _mm_store_si128(reinterpret_cast<__m128i*>(tile + (i + j) * 64),
                        pairs ? pairs_first(rows[j]) : rows[j]);
    }
  }
}

/// Of each 16 codes of four bits the even ones, then the odd ones.
__m128i even_first(__m128i codes) {
  const __m128i nibble = _mm_set1_epi8(15), byte = _mm_set1_epi16(0xff);
  const auto together = [&](__m128i x) {
    x = _mm_and_si128(x, nibble);
    return _mm_and_si128(_mm_or_si128(x, _mm_srli_epi16(x, 4)), byte);
  };
  const __m128i apart = _mm_packus_epi16(together(codes), together(_mm_srli_epi16(codes, 4)));
  return _mm_shuffle_epi32(apart, _MM_SHUFFLE(3, 1, 2, 0));
}

/// The same of kInt4: rows are of qwords.
void transpose_nibbles(const std::byte* rows, std::int64_t row_bytes, std::byte* out) {
  for (std::int64_t o = 0; o < kOutputs; ++o) {
    const __m128d two = _mm_castsi128_pd(even_first(load4(rows + o * row_bytes)));
    auto* to = reinterpret_cast<double*>(out + o / 16 * 256 + o % 16 * 8);
    _mm_storel_pd(to, two);
    _mm_storeh_pd(to + 16, two);
  }
}

/// Writes the rows of one panel.
struct PanelPacker {
  const WeightLayout& layout;
  const StoredMatrix& stored;

  bool as_stored() const { return stored.codes == layout.codes && layout.parts == 1; }

  /// Elements [column, column + count) of one row, in the form of part `part`.
  void put_row(const std::byte* row, std::int64_t index, std::int64_t column, std::int64_t count,
               int part, std::uint32_t* out) const {
    if (as_stored()) {
      const std::int64_t bits = code_bits(stored.codes);
      std::memcpy(out, row + column * bits / 8, static_cast<std::size_t>(count * bits / 8));
      return;
    }
    float values[kPiece];
    cpu::decode(stored, row, index, column, count, values);
    if (layout.codes == Codes::kF32) {
      std::memcpy(out, values, static_cast<std::size_t>(count) * sizeof(float));
      return;
    }
    auto* to = reinterpret_cast<std::uint16_t*>(out);
    for (std::int64_t i = 0; i < count; ++i) {
      const std::uint16_t upper = to_bf16(values[i]).bits;
      const float left = values[i] - std::bit_cast<float>(static_cast<std::uint32_t>(upper) << 16);
      to[i] = part == 0 ? upper : to_bf16(left).bits;
    }
  }

  void transpose(const std::byte* rows, std::int64_t row_bytes, std::byte* out) const {
    if (layout.codes == Codes::kInt4) return transpose_nibbles(rows, row_bytes, out);
    const std::int64_t dwords = layout.block_bytes / (4 * kOutputs);
    transpose_block(rows, row_bytes, dwords, layout.codes == Codes::kFp8, out);
  }

  /// `rows` [count] rows, `row_bytes` apart; the first has number `index` in its group.
  void codes(const std::byte* rows, std::int64_t count, std::int64_t row_bytes, std::int64_t index,
             std::byte* out) const {
    const std::int64_t per_block = layout.block_bytes / (4 * kOutputs);
    // Whole blocks of whole rows need no copy.
    if (as_stored() && count == kOutputs && layout.slice_k % kBlock == 0) {
      for (std::int64_t b = 0; b < layout.slices * layout.blocks; ++b, out += layout.block_bytes)
        transpose(rows + b * per_block * 4, row_bytes, out);
      return;
    }
    Piece piece;
    if (count < kOutputs) std::memset(&piece, 0, sizeof piece);
    for (int part = 0; part < layout.parts; ++part)
      for (int slice = 0; slice < layout.slices; ++slice)
        for (std::int64_t k = 0; k < layout.slice_k; k += kPiece) {
          const std::int64_t some = std::min(kPiece, layout.slice_k - k);
          if (some % kBlock != 0) std::memset(&piece, 0, sizeof piece);
          for (std::int64_t r = 0; r < count; ++r)
            put_row(rows + r * row_bytes, index + r, slice * layout.slice_k + k, some, part,
                    piece.dwords[r]);
          for (std::int64_t b = 0; b * kBlock < some; ++b, out += layout.block_bytes)
            transpose(reinterpret_cast<const std::byte*>(piece.dwords[0] + b * per_block),
                      kPiece * 4, out);
        }
  }

  /// Of numbers of so many bytes.
  template <std::size_t kSize>
  void scales(std::int64_t count, std::int64_t index, std::byte* to) const {
    const std::int64_t columns = layout.scale_columns;
    const std::int64_t some = layout.scale_n == 1 ? count : 1;
    for (std::int64_t r = 0; r < some; ++r) {
      const std::byte* from = stored.scales.data +
          (index + r) / layout.scale_n * columns * static_cast<std::int64_t>(kSize);
      for (std::int64_t column = 0; column < columns; ++column)
        std::memcpy(to + column * layout.scale_bytes + r * static_cast<std::int64_t>(kSize),
                    from + column * static_cast<std::int64_t>(kSize), kSize);
    }
  }

  void zeros(std::int64_t count, std::int64_t index, std::byte* to) const {
    for (std::int64_t r = 0; r < count; ++r) {
      const std::uint8_t* from =
          stored.scales.zeros + (index + r) / layout.scale_n * layout.scale_columns;
      for (std::int64_t column = 0; column < layout.scale_columns; ++column)
        to[column * kOutputs / 2 + r / 2] |= std::byte(from[column] & 15) << (r % 2 * 4);
    }
  }

  /// What its rows are scaled with.
  void side(std::int64_t count, std::int64_t index, std::byte* panel) const {
    std::memset(panel + layout.scales_at, 0,
                static_cast<std::size_t>(layout.panel_bytes - layout.scales_at));
    if (!layout.scaled) return;
    std::byte* const to = panel + layout.scales_at;
    switch (dtype_size(layout.scale_dtype)) {
      case 1: scales<1>(count, index, to); break;
      case 2: scales<2>(count, index, to); break;
      default: scales<4>(count, index, to);
    }
    if (layout.zeros) zeros(count, index, panel + layout.zeros_at);
  }
};

/// With the group's own scales.
StoredMatrix of_group(StoredMatrix s, std::int64_t group) {
  if (group == 0 || s.scales.data == nullptr) return s;
  Scales& scales = s.scales;
  const std::int64_t rows = (s.n + scales.block_n - 1) / scales.block_n;
  const std::int64_t before = group * rows * ((s.k + scales.block_k - 1) / scales.block_k);
  scales.data += before * static_cast<std::int64_t>(dtype_size(scales.dtype));
  if (scales.zeros != nullptr) scales.zeros += before;
  return s;
}

/// The i-th code of a row goes to the j-th place of another, whose bytes were zero.
void put_code(std::int64_t bits, const std::byte* from, std::int64_t i, std::byte* to,
              std::int64_t j) {
  if (bits == 4) {
    to[j / 2] |= (from[i / 2] >> (i % 2 * 4) & std::byte{15}) << (j % 2 * 4);
    return;
  }
  const std::int64_t size = bits / 8;
  std::memcpy(to + j * size, from + i * size, static_cast<std::size_t>(size));
}

}  // namespace

void WeightPacker::add(const std::byte* rows, std::int64_t count, std::int64_t row_bytes) {
  const FloatMode mode;
  Weight& w = weight_;
  const std::int64_t dense = w.k_ * code_bits(stored_.codes) / 8;
  if (row_bytes == 0) row_bytes = dense;
  assert(rows_ + count <= w.groups_ * w.n_);
  if (w.options_.rows) {
    const auto size = static_cast<std::int64_t>(dtype_size(WeightLayout::row_dtype(w)));
    for (std::int64_t r = 0; r < count; ++r, ++rows_, rows += row_bytes) {
      std::byte* to = w.data_.data() + rows_ * w.k_ * size;
      // `reference` decodes to float32, the others to bf16.
      const auto as = size == 4 ? Numerics::kReference : Numerics::kBf16;
      decode_rows(as, stored_, rows, rows_ % w.n_, 1, to);
    }
    return;
  }
  const WeightLayout layout = WeightLayout::of(w);
  while (count > 0) {
    const std::int64_t group = rows_ / w.n_, index = rows_ % w.n_;
    assert(index % kOutputs == 0);
    const std::int64_t some = std::min({count, kOutputs, w.n_ - index});
    std::byte* panel =
        w.data_.data() + (group * layout.panels + index / kOutputs) * layout.panel_bytes;
    const StoredMatrix stored = of_group(stored_, group);
    const PanelPacker packer{layout, stored};
    packer.codes(rows, some, row_bytes, index, panel);
    packer.side(some, index, panel);
    rows_ += some;
    rows += some * row_bytes;
    count -= some;
  }
}

void WeightPacker::add_transposed(const std::byte* columns, std::int64_t row_bytes) {
  const std::int64_t bits = code_bits(stored_.codes);
  const std::int64_t n = weight_.n_, k = weight_.k_;
  assert(rows_ % n == 0);
  const std::int64_t out_bytes = k * bits / 8;
  Buffer rows = Buffer::uninitialized(static_cast<std::size_t>(kOutputs * out_bytes));
  for (std::int64_t first = 0; first < n; first += kOutputs) {
    const std::int64_t count = std::min(kOutputs, n - first);
    std::memset(rows.data(), 0, rows.size());
    for (std::int64_t j = 0; j < k; ++j)
      for (std::int64_t i = 0; i < count; ++i)
        put_code(bits, columns + j * row_bytes, first + i, rows.data() + i * out_bytes, j);
    add(rows.data(), count);
  }
}

}  // namespace troupe::kernels
