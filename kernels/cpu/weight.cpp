#include "kernels/weight.h"

#include <bit>
#include <cassert>
#include <new>
#include <string>

#include "kernels/cpu/weight_decode.h"
#include "kernels/cpu/weight_layout.h"
#include "runtime/float_mode.h"

namespace troupe::kernels {
namespace {

constexpr std::int64_t round_up(std::int64_t x, std::int64_t to) { return (x + to - 1) / to * to; }

bool is_plain(Codes c) {
  return c == Codes::kF32 || c == Codes::kBf16 || c == Codes::kF16;
}

std::string shape(std::int64_t n, std::int64_t k) {
  return "[" + std::to_string(n) + ", " + std::to_string(k) + "]";
}

Status check(const StoredMatrix& s, const PackOptions& options, std::int64_t groups) {
  const auto fail = [&](const std::string& why) {
    return invalid_argument("A weight of shape " + shape(s.n, s.k) + " " + why);
  };
  if (s.n < 1 || s.k < 1 || s.n > limits::kDimensionMax || s.k > limits::kDimensionMax ||
      groups < 1 || groups > limits::kDimensionMax)
    return fail("cannot be packed; check the model's config.json.");
  if (options.slices < 1 || options.slices > limits::kSumSlices ||
      !std::has_single_bit(static_cast<unsigned>(options.slices)) || s.k % options.slices != 0)
    return fail("cannot be summed as " + std::to_string(options.slices) +
                " slices; use sum_slices().");
  if (code_bits(s.codes) == 4 && s.k % 2 != 0)
    return fail("cannot hold two codes in a byte, its rows have an odd length.");
  const Scales& scales = s.scales;
  if (scales.data == nullptr && scales.zeros == nullptr) return {};
  const DType d = scales.dtype;
  if (is_plain(s.codes) || scales.block_n < 1 || scales.block_k < 1 ||
      (d != DType::kF32 && d != DType::kBf16 && d != DType::kF16 && d != DType::kF8E8M0))
    return fail("has scales that are not known; check its quantization_config.");
  if (scales.data == nullptr || (scales.zeros != nullptr && s.codes != Codes::kInt4))
    return fail("has zeros that are not known; check its quantization_config.");
  return {};
}

}  // namespace

/// Whether a kernel can find the scales of a block of 32 by 32 of the panels: as one for all k of
/// it, and one for all outputs or one for each; or, of a matrix that was turned, as one for each k.
bool keeps_codes(const StoredMatrix& s, const PackOptions& options) {
  if (is_plain(s.codes) || s.k / options.slices % WeightLayout::kBlock != 0) return false;
  if (s.scales.data == nullptr) return true;
  const std::int64_t block_n = s.scales.block_n, block_k = s.scales.block_k;
  if (block_k == 1)
    return s.codes != Codes::kFp4 && block_n > 1 &&
           (block_n % WeightLayout::kOutputs == 0 || block_n >= s.n);
  return (block_k % WeightLayout::kBlock == 0 || block_k >= s.k) &&
         (block_n == 1 || block_n % WeightLayout::kOutputs == 0);
}

Weight WeightLayout::plan(Numerics numerics, const StoredMatrix& s, const PackOptions& options,
                          std::int64_t groups) {
  const bool reference = numerics == Numerics::kReference;
  Weight w;
  w.groups_ = groups;
  w.n_ = s.n;
  w.k_ = s.k;
  w.options_ = options;
  w.numerics_ = numerics;
  if (options.rows) {
    const bool wide = s.n == 1 || s.codes == Codes::kF32 || s.codes == Codes::kF16;
    w.codes_ = wide || (reference && !is_plain(s.codes)) ? Codes::kF32 : Codes::kBf16;
    return w;
  }
  if (keeps_codes(s, options)) {
    w.codes_ = s.codes;
    if (s.scales.data == nullptr) return w;
    w.scale_dtype_ = s.scales.dtype;
    w.scale_n_ = s.scales.block_n;
    w.scale_k_ = s.scales.block_k;
    w.zeros_ = s.scales.zeros != nullptr;
    return w;
  }
  const bool two_parts = options.full_precision && s.codes == Codes::kF32;
  w.codes_ = s.codes == Codes::kBf16 || (!reference && !two_parts) ? Codes::kBf16 : Codes::kF32;
  return w;
}

WeightLayout WeightLayout::of(const Weight& w) {
  WeightLayout l;
  assert(!w.options_.rows);
  const bool two_parts = w.numerics_ != Numerics::kReference && w.codes_ == Codes::kF32;
  l.codes = two_parts ? Codes::kBf16 : w.codes_;
  l.parts = two_parts ? 2 : 1;
  l.slices = w.options_.slices;
  l.groups = w.groups_;
  l.n = w.n_;
  l.k = w.k_;
  l.slice_k = l.k / l.slices;
  l.blocks = (l.slice_k + kBlock - 1) / kBlock;
  l.panels = (l.n + kOutputs - 1) / kOutputs;
  l.block_bytes = kBlock * kOutputs * code_bits(l.codes) / 8;
  l.part_bytes = l.slices * l.blocks * l.block_bytes;
  l.scales_at = l.parts * l.part_bytes;
  l.zeros_at = l.scales_at;
  if (w.scale_n_ > 0) {
    l.scaled = true;
    l.zeros = w.zeros_;
    l.scale_dtype = w.scale_dtype_;
    l.scale_n = w.scale_n_;
    l.scale_k = w.scale_k_;
    l.scale_columns = (l.k + l.scale_k - 1) / l.scale_k;
    l.scale_bytes = (l.scale_n == 1 ? kOutputs : 1) *
                    static_cast<std::int64_t>(dtype_size(l.scale_dtype));
    l.zeros_at += round_up(l.scale_columns * l.scale_bytes, 64);
  }
  l.panel_bytes = l.zeros_at + (l.zeros ? round_up(l.scale_columns * kOutputs / 2, 64) : 0);
  return l;
}

std::size_t WeightLayout::bytes_of(const Weight& w) {
  if (!w.options_.rows) return of(w).bytes();
  return static_cast<std::size_t>(w.groups_ * w.n_ * w.k_) * dtype_size(row_dtype(w));
}

std::size_t packed_bytes(Numerics numerics, const StoredMatrix& stored, const PackOptions& options,
                         std::int64_t groups) {
  return WeightLayout::bytes_of(WeightLayout::plan(numerics, stored, options, groups));
}

Result<WeightPacker> WeightPacker::begin(Numerics numerics, const StoredMatrix& stored,
                                         const PackOptions& options, std::int64_t groups) {
  if (auto ok = check(stored, options, groups); !ok) return ok.error();
  WeightPacker packer;
  packer.stored_ = stored;
  packer.weight_ = WeightLayout::plan(numerics, stored, options, groups);
  try {
    packer.weight_.bytes_ = WeightLayout::bytes_of(packer.weight_);
    packer.weight_.data_ = Buffer::in_huge_pages(packer.weight_.bytes_);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("There is no memory for a weight of shape " +
                              shape(stored.n, stored.k) + "; give the worker less to hold.");
  }
  return packer;
}

void decode_rows(Numerics numerics, const StoredMatrix& stored, const std::byte* codes,
                 std::int64_t first, std::int64_t count, void* out) {
  const FloatMode mode;
  const std::int64_t row_bytes = stored.k * code_bits(stored.codes) / 8;
  for (std::int64_t i = 0; i < count; ++i) {
    const std::byte* row = codes + i * row_bytes;
    if (numerics == Numerics::kReference) {
      cpu::decode(stored, row, first + i, 0, stored.k, static_cast<float*>(out) + i * stored.k);
      continue;
    }
    auto* to = static_cast<std::uint16_t*>(out) + i * stored.k;
    constexpr std::int64_t kPiece = 256;
    float values[kPiece];
    for (std::int64_t k = 0; k < stored.k; k += kPiece) {
      const std::int64_t part = stored.k - k < kPiece ? stored.k - k : kPiece;
      cpu::decode(stored, row, first + i, k, part, values);
      for (std::int64_t j = 0; j < part; ++j) to[k + j] = to_bf16(values[j]).bits;
    }
  }
}

Weight Weight::placed(std::shared_ptr<const std::byte> there) const {
  Weight w;
  w.there_ = std::move(there);
  w.bytes_ = bytes_;
  w.groups_ = groups_;
  w.n_ = n_;
  w.k_ = k_;
  w.options_ = options_;
  w.numerics_ = numerics_;
  w.codes_ = codes_;
  w.scale_dtype_ = scale_dtype_;
  w.scale_n_ = scale_n_;
  w.scale_k_ = scale_k_;
  w.zeros_ = zeros_;
  return w;
}

const float* vector_of(const Weight& weight) {
  assert(WeightLayout::options(weight).rows);
  assert(WeightLayout::row_dtype(weight) == DType::kF32);
  return reinterpret_cast<const float*>(WeightLayout::row_data(weight));
}

}  // namespace troupe::kernels
