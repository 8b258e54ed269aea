#include "kernels/packed_matrix.h"

#include <algorithm>
#include <bit>
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

/// One slice of one panel as pairs of k. The destination is zeroed.
template <class T>
void pack_pairs(const WeightSource& s, std::int64_t first_n, std::int64_t first_k, std::int64_t k,
                Bf16* out) {
  const T* data = static_cast<const T*>(s.data);
  const std::int64_t columns = std::min(kPanel, s.n - first_n);
  for (std::int64_t c = 0; c < columns; ++c) {
    const T* row = data + (first_n + c) * s.stride_n + first_k * s.stride_k;
    for (std::int64_t i = 0; i < k; ++i)
      out[(i / 2) * kPanel * 2 + c * 2 + i % 2] = as_bf16(row[i * s.stride_k]);
  }
}

void pack_f32(const WeightSource& s, std::int64_t first_n, std::int64_t first_k, std::int64_t k,
              float* out) {
  const float* data = static_cast<const float*>(s.data);
  const std::int64_t columns = std::min(kPanel, s.n - first_n);
  for (std::int64_t c = 0; c < columns; ++c) {
    const float* row = data + (first_n + c) * s.stride_n + first_k * s.stride_k;
    for (std::int64_t i = 0; i < k; ++i) out[i * kPanel + c] = row[i * s.stride_k];
  }
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

Result<PackedMatrix> pack_matrix(Numerics numerics, const WeightSource& source,
                                 const PackOptions& options) {
  if (source.n < 1 || source.k < 1 || source.n > limits::kDimensionMax ||
      source.k > limits::kDimensionMax)
    return invalid_argument("A weight of shape " + shape(source.n, source.k) +
                            " cannot be packed; check the model's config.json.");
  if (options.slices < 1 || options.slices > limits::kSumSlices ||
      !std::has_single_bit(static_cast<unsigned>(options.slices)) ||
      source.k % options.slices != 0)
    return invalid_argument("A weight of shape " + shape(source.n, source.k) +
                            " cannot be summed as " + std::to_string(options.slices) +
                            " slices; use sum_slices().");
  PackedMatrix m;
  m.n_ = source.n;
  m.k_ = source.k;
  m.slices_ = options.slices;
  m.full_precision_ = options.full_precision;
  m.type_ = packed_type(numerics, source.type, options.full_precision);
  m.numerics_ = numerics;
  try {
    m.data_ = Buffer(packed_bytes(numerics, source.type, source.n, source.k, options));
  } catch (const std::bad_alloc&) {
    return resource_exhausted("There is no memory for a weight of shape " +
                              shape(source.n, source.k) + "; give the worker less to hold.");
  }
  const std::int64_t slice = m.slice_k();
  const std::size_t slice_bytes =
      static_cast<std::size_t>(m.slice_k_padded() * kPanel) * weight_size(m.type_);
  std::byte* out = m.data_.data();
  for (std::int64_t p = 0; p < m.panels(); ++p) {
    for (int s = 0; s < m.slices_; ++s, out += slice_bytes) {
      if (m.type_ == WeightType::kF32)
        pack_f32(source, p * kPanel, s * slice, slice, reinterpret_cast<float*>(out));
      else if (source.type == WeightType::kF32)
        pack_pairs<float>(source, p * kPanel, s * slice, slice, reinterpret_cast<Bf16*>(out));
      else
        pack_pairs<Bf16>(source, p * kPanel, s * slice, slice, reinterpret_cast<Bf16*>(out));
    }
  }
  return m;
}

}  // namespace troupe::kernels
