#include "model/spec/held_forms.h"

namespace troupe {
namespace {

using kernels::Codes;

constexpr std::byte kSomeScale{};
constexpr std::uint8_t kSomeZero = 0;

Codes plain_codes(DType dtype) {
  return dtype == DType::kF32 ? Codes::kF32 : dtype == DType::kF16 ? Codes::kF16 : Codes::kBf16;
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
  // Quantised rows are decoded first, since one of the two is turned.
  kernels::StoredMatrix part;
  part.codes = stored.scales.data == nullptr          ? stored.codes
               : numerics == Numerics::kReference ? Codes::kF32
                                                  : Codes::kBf16;
  part.n = a.kv_lora;
  part.k = a.nope;
  const HeldForm uk = {WeightRole::kUk, part, options, a.heads};
  part.n = a.v_head;
  part.k = a.kv_lora;
  return {uk, {WeightRole::kUv, part, options, a.heads}};
}

std::uint64_t held_bytes(const WeightSpec& w, const AttentionSpec& a, Numerics numerics) {
  std::uint64_t bytes = 0;
  for (const HeldForm& form : held_forms(w, a, numerics))
    bytes += kernels::packed_bytes(numerics, form.stored, form.options, form.groups);
  return bytes;
}

}  // namespace troupe
