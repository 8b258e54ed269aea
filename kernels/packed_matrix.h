#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>

#include "runtime/buffer.h"
#include "runtime/limits.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe::kernels {

/// How a weight's elements are stored.
enum class WeightType : std::uint8_t { kF32, kBf16 };

constexpr std::size_t weight_size(WeightType t) { return t == WeightType::kF32 ? 4 : 2; }

/// The matrix W [n, k] of y = x W^T, wherever it lies: element (i, j) is at i * stride_n +
/// j * stride_k elements from `data`. A transposed or per-head part of a tensor is packed without a
/// copy.
struct WeightSource {
  const void* data = nullptr;
  WeightType type = WeightType::kBf16;
  std::int64_t n = 0, k = 0;
  std::int64_t stride_n = 0, stride_k = 1;
};

/// A dense row-major W [n, k], as checkpoints hold it.
inline WeightSource dense_source(const void* data, WeightType type, std::int64_t n,
                                 std::int64_t k) {
  return {data, type, n, k, k, 1};
}

struct PackOptions {
  /// The product is summed as this many equal slices of k, each in the family's own order, joined
  /// as a binary tree ((s0+s1)+(s2+s3))+... in float32. A power of two that divides k.
  int slices = 1;
  /// Activations stay float32 in every family (the router's gate).
  bool full_precision = false;
};

/// The largest S in {8, 4, 2, 1} for which k is S slices of whole granules. A tensor-parallel rank
/// of T that holds k / T of the matrix packs it with S / T slices; joining the ranks' results as a
/// binary tree gives the bits of the whole.
constexpr int sum_slices(std::int64_t k, std::int64_t granule) {
  int s = limits::kSumSlices;
  while (s > 1 && k % (s * granule) != 0) s /= 2;
  return s;
}

/// Columns (outputs) of one panel.
inline constexpr std::int64_t kPanel = 32;

/// A weight, packed for one family. Every family uses the same two layouts:
///
///   bf16: [n / 32 panels][slice][k / 2][32][2]   pairs of k; a slice is padded with zeros to 32 k
///   f32:  [n / 32 panels][slice][k][32]
///
/// A panel is contiguous, so a thread streams memory; one output is one vector lane, so no family
/// sums across lanes; the pairs are what AVX-512's bf16 dot product and AMX tiles want. Columns
/// beyond n are zeros. The stored type is kept, but the bf16 families round a float32 weight to
/// bf16 unless full precision is asked for.
class PackedMatrix {
 public:
  PackedMatrix() = default;

  bool empty() const { return n_ == 0; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  int slices() const { return slices_; }
  bool full_precision() const { return full_precision_; }
  WeightType type() const { return type_; }
  Numerics numerics() const { return numerics_; }
  std::size_t bytes() const { return data_.size(); }
  std::span<const std::byte> memory() const { return data_.span(); }

  std::int64_t panels() const { return (n_ + kPanel - 1) / kPanel; }
  std::int64_t slice_k() const { return k_ / slices_; }
  /// Elements of k that a slice takes in memory.
  std::int64_t slice_k_padded() const { return padded(type_, slice_k()); }
  std::size_t panel_bytes() const {
    return static_cast<std::size_t>(slices_ * slice_k_padded() * kPanel) * weight_size(type_);
  }
  const std::byte* panel(std::int64_t i) const {
    return data_.data() + static_cast<std::size_t>(i) * panel_bytes();
  }

  static std::int64_t padded(WeightType type, std::int64_t slice_k) {
    return type == WeightType::kBf16 ? (slice_k + 31) / 32 * 32 : slice_k;
  }

 private:
  friend class MatrixPacker;

  Buffer data_;
  std::int64_t n_ = 0, k_ = 0;
  int slices_ = 1;
  bool full_precision_ = false;
  WeightType type_ = WeightType::kBf16;
  Numerics numerics_ = Numerics::kReference;
};

/// Packs a matrix whose rows come a few at a time, from the first to the last.
class MatrixPacker {
 public:
  struct Shape {
    WeightType type = WeightType::kBf16;  ///< of the rows that will come
    std::int64_t n = 0, k = 0;
  };
  /// Fails with kInvalidArgument for an impossible shape and kResourceExhausted when memory is
  /// short.
  static Result<MatrixPacker> begin(Numerics numerics, const Shape& shape,
                                    const PackOptions& options = {});

  /// The next rows: whole panels (kPanel), unless they are the last. What they became comes back.
  std::span<const std::byte> add(const WeightSource& rows);
  /// After all rows.
  PackedMatrix take() { return std::move(matrix_); }

 private:
  PackedMatrix matrix_;
  std::int64_t rows_ = 0;  ///< packed so far
};

/// Copies and packs a whole matrix. Fails with kInvalidArgument for an impossible shape and
/// kResourceExhausted when memory is short.
Result<PackedMatrix> pack_matrix(Numerics numerics, const WeightSource& source,
                                 const PackOptions& options = {});

/// The memory that pack_matrix would take, for planning.
std::size_t packed_bytes(Numerics numerics, WeightType source_type, std::int64_t n, std::int64_t k,
                         const PackOptions& options = {});

}  // namespace troupe::kernels
