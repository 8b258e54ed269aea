#include "model/spec/held_forms.h"

#include <utility>

namespace troupe {
namespace {

using kernels::Codes;

constexpr std::byte kSomeScale{};
constexpr std::uint8_t kSomeZero = 0;

Codes plain_codes(DType dtype) {
  return dtype == DType::kF32 ? Codes::kF32 : dtype == DType::kF16 ? Codes::kF16 : Codes::kBf16;
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

kernels::StoredMatrix stored_matrix(const WeightSpec& w) {
  kernels::StoredMatrix m;
  m.n = w.n;
  m.k = w.k;
  if (w.format == StoredFormat::kPlain) {
    m.codes = plain_codes(w.dtype);
    return m;
  }
  m.scales.data = &kSomeScale;
  m.scales.dtype = w.dtype;
  m.scales.block_k = w.group;
  switch (w.format) {
    case StoredFormat::kPlain: break;
    case StoredFormat::kFp8Blocks:
      m.codes = Codes::kFp8;
      m.scales.block_n = m.scales.block_k = kFp8Block;
      break;
    case StoredFormat::kFp8Channels:
      m.codes = Codes::kFp8;
      m.scales.block_k = w.k;
      break;
    case StoredFormat::kInt4Packed: m.codes = Codes::kInt4; break;
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
