#include "model/spec/held_forms.h"

#include <numeric>
#include <utility>

namespace troupe {
namespace {

using kernels::Codes;

constexpr std::byte kSomeScale{};
constexpr std::uint8_t kSomeZero = 0;

Codes plain_codes(DType dtype) {
  return dtype == DType::kF32 ? Codes::kF32 : dtype == DType::kF16 ? Codes::kF16 : Codes::kBf16;
}

/// Blocks of a part begin where it does: smaller ones, unless the part begins with a block.
std::int64_t block_of_part(std::int64_t block, std::int64_t first, std::int64_t whole) {
  if (block >= whole || first % block == 0) return block;
  const std::int64_t smaller = std::gcd(block, first);
  return smaller % kernels::WeightPacker::kRows == 0 ? smaller : 1;
}

/// One half of kv_b: its codes where they can be held and blocks of scales end with a head's half,
/// else the numbers that they mean.
HeldForm half(WeightRole role, kernels::StoredMatrix part, const AttentionSpec& a,
              std::int64_t scale_rows, Numerics numerics, const kernels::PackOptions& options) {
  const bool whole = a.nope % scale_rows == 0 && a.v_head % scale_rows == 0;
  if (part.scales.data != nullptr && !(whole && kernels::keeps_codes(part, options))) {
    part.codes = numerics == Numerics::kReference ? Codes::kF32 : Codes::kBf16;
    part.scales = {};
  }
  return {role, part, options, a.heads};
}

/// W_UK of each head, turned with its scales: [kv_lora, nope].
HeldForm turned_keys(const WeightSpec& w, const AttentionSpec& a, Numerics numerics,
                     const kernels::PackOptions& options) {
  kernels::StoredMatrix part = stored_matrix(w);
  const std::int64_t scale_rows = part.scales.block_n;
  part.n = a.kv_lora;
  part.k = a.nope;
  std::swap(part.scales.block_n, part.scales.block_k);
  return half(WeightRole::kUk, part, a, scale_rows, numerics, options);
}

/// W_UV of each head: [v_head, kv_lora].
HeldForm values(const WeightSpec& w, const AttentionSpec& a, Numerics numerics,
                const kernels::PackOptions& options) {
  kernels::StoredMatrix part = stored_matrix(w);
  part.n = a.v_head;
  part.k = a.kv_lora;
  return half(WeightRole::kUv, part, a, part.scales.block_n, numerics, options);
}

}  // namespace

kernels::StoredMatrix whole_matrix(const WeightSpec& w) {
  kernels::StoredMatrix m;
  m.n = w.stored_n();
  m.k = w.stored_k();
  if (w.format == StoredFormat::kPlain) {
    m.codes = plain_codes(w.dtype);
    return m;
  }
  m.scales.data = &kSomeScale;
  m.scales.dtype = w.dtype;
  m.scales.block_k = w.group;
  switch (w.format) {
    case StoredFormat::kPlain:
      break;
    case StoredFormat::kFp8Blocks:
      m.codes = Codes::kFp8;
      m.scales.block_n = m.scales.block_k = kFp8Block;
      break;
    case StoredFormat::kFp8Channels:
      m.codes = Codes::kFp8;
      m.scales.block_k = m.k;
      break;
    case StoredFormat::kInt4Packed:
      m.codes = Codes::kInt4;
      break;
    case StoredFormat::kInt4Awq:
      m.codes = Codes::kInt4;
      m.scales.zeros = &kSomeZero;
      break;
    case StoredFormat::kMxfp4:
      m.codes = Codes::kFp4;
      m.scales.dtype = DType::kF8E8M0;
      break;
  }
  return m;
}

kernels::StoredMatrix stored_matrix(const WeightSpec& w) {
  kernels::StoredMatrix m = whole_matrix(w);
  if (m.scales.data != nullptr && w.part_of > 0) {
    kernels::Scales& s = m.scales;
    if (w.split == SplitAxis::kOutputs) s.block_n = block_of_part(s.block_n, w.part_first, m.n);
    if (w.split == SplitAxis::kInputs) s.block_k = block_of_part(s.block_k, w.part_first, m.k);
  }
  m.n = w.n;
  m.k = w.k;
  return m;
}

std::vector<HeldForm> held_forms(const WeightSpec& w, const AttentionSpec& a, Numerics numerics) {
  const kernels::StoredMatrix stored = stored_matrix(w);
  kernels::PackOptions options;
  options.slices = w.slices;
  options.full_precision = w.precision == Precision::kFull;
  options.rows = w.precision == Precision::kVector || w.precision == Precision::kRows;
  if (w.role != WeightRole::kKvB) return {{w.role, stored, options, 1}};
  return {turned_keys(w, a, numerics, options), values(w, a, numerics, options)};
}

std::uint64_t held_bytes(const WeightSpec& w, const AttentionSpec& a, Numerics numerics) {
  std::uint64_t bytes = 0;
  for (const HeldForm& form : held_forms(w, a, numerics))
    bytes += kernels::packed_bytes(numerics, form.stored, form.options, form.groups);
  return bytes;
}

}  // namespace troupe
