#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "runtime/buffer.h"
#include "runtime/dtype.h"
#include "runtime/limits.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe::kernels {

/// What the codes of a stored matrix mean.
enum class Codes : std::uint8_t {
  kF32,
  kBf16,
  kF16,
  kFp8,   ///< e4m3, a byte each
  kInt4,  ///< two in a byte, the even column in the low half; unsigned, less a zero
  kFp4,   ///< e2m1, two in a byte, the even column in the low half
};

/// Bits of one code.
constexpr int code_bits(Codes c) {
  if (c == Codes::kF32) return 32;
  if (c == Codes::kBf16 || c == Codes::kF16) return 16;
  return c == Codes::kFp8 ? 8 : 4;
}

/// What the codes are multiplied by: one scale for each block of `block_n` rows by `block_k`
/// columns, and a zero that is taken from the code first. The last blocks may be ragged. Scales are
/// below 2^100. Groups have scales of their own, one group's after the other's.
struct Scales {
  const std::byte* data = nullptr;  ///< [ceil(n / block_n), ceil(k / block_k)]; null: none
  DType dtype = DType::kF32;        ///< kF32, kBf16, kF16, kF8E8M0
  std::int64_t block_n = 1, block_k = 1;
  /// kInt4: as the scales; null: 8 everywhere.
  const std::uint8_t* zeros = nullptr;
};

/// How a matrix W [n, k] of y = x W^T is stored: element (i, j) is code i * k + j of the rows that
/// come, as float32: RN((code - zero) * scale). The numerics `bf16` round that to bf16.
struct StoredMatrix {
  Codes codes = Codes::kBf16;
  std::int64_t n = 0, k = 0;
  Scales scales;
};

struct PackOptions {
  /// Products that tensor parallelism splits along k are summed as this many equal slices of k,
  /// joined as a binary tree ((s0+s1)+(s2+s3))+... in float32. A power of two that divides k.
  int slices = 1;
  /// Activations are not rounded: the gate, and the products that the absorbed form of MLA adds.
  bool full_precision = false;
  /// Rows stay as they are, for `embedding` and vectors: no product can be made with it.
  bool rows = false;
};

/// The largest S in {8, 4, 2, 1} that divides `count`: heads, or k.
constexpr int sum_slices(std::int64_t count) {
  int s = limits::kSumSlices;
  while (count % s != 0) s /= 2;
  return s;
}

/// A matrix in a device's memory, held at its stored width and laid out for the numerics: opaque
/// but for its shape. `groups` matrices of the same shape may lie in one (a head each).
class Weight {
 public:
  bool empty() const { return n_ == 0; }
  std::int64_t groups() const { return groups_; }
  std::int64_t n() const { return n_; }
  std::int64_t k() const { return k_; }
  int slices() const { return options_.slices; }
  bool full_precision() const { return options_.full_precision; }
  std::size_t bytes() const { return bytes_; }
  /// All of it as it was packed: the host's, or of the device that it was placed on.
  std::span<const std::byte> memory() const { return {at(), bytes_}; }
  /// The same matrix elsewhere, where its bytes lie at `there`.
  Weight placed(std::shared_ptr<const std::byte> there) const;

 private:
  friend class WeightPacker;
  friend struct WeightLayout;  // kernels/cpu/weight_layout.h

  /// Where ops find it.
  const std::byte* at() const { return there_ ? there_.get() : data_.data(); }

  Buffer data_;
  std::shared_ptr<const std::byte> there_;  ///< not null: instead of `data_`, which is empty
  std::size_t bytes_ = 0;
  std::int64_t groups_ = 1, n_ = 0, k_ = 0;
  PackOptions options_;
  Numerics numerics_ = Numerics::kReference;
  /// What is held: as stored, or what the numerics make of it where its layout does not fit.
  Codes codes_ = Codes::kBf16;
  DType scale_dtype_ = DType::kF32;
  std::int64_t scale_n_ = 0, scale_k_ = 0;  ///< a scale's block; 0: none
  bool zeros_ = false;
};

/// Packs a matrix whose rows come a few at a time, from the first to the last.
class WeightPacker {
 public:
  /// `stored.scales` must stay until take(). Fails with kInvalidArgument for an impossible shape
  /// and kResourceExhausted when memory is short.
  static Result<WeightPacker> begin(Numerics numerics, const StoredMatrix& stored,
                                    const PackOptions& options = {}, std::int64_t groups = 1);

  /// Rows at a time must be multiples of this, unless they are a group's last.
  static constexpr std::int64_t kRows = 32;
  /// The next `count` rows of codes, each `row_bytes` after the one before (0: dense).
  void add(const std::byte* rows, std::int64_t count, std::int64_t row_bytes = 0);
  /// The next group: a transposed W, element (i, j) is code i of the row at j * row_bytes.
  void add_transposed(const std::byte* columns, std::int64_t row_bytes);
  /// After all rows.
  Weight take() { return std::move(weight_); }

 private:
  Weight weight_;
  StoredMatrix stored_;
  std::int64_t rows_ = 0;  ///< packed so far, of all groups
};

/// Whether a quantised matrix is held at its stored width, with its scales; else as plain numbers.
bool keeps_codes(const StoredMatrix& stored, const PackOptions& options = {});

/// The memory that a packed matrix takes.
std::size_t packed_bytes(Numerics numerics, const StoredMatrix& stored,
                         const PackOptions& options = {}, std::int64_t groups = 1);

/// The rows [first, first + count) as plain numbers [count, k]: bf16 with the numerics `bf16`,
/// float32 with `reference`. `codes` points at the first of them.
void decode_rows(Numerics numerics, const StoredMatrix& stored, const std::byte* codes,
                 std::int64_t first, std::int64_t count, void* out);

/// The elements of a vector that was packed with `rows`: [n * k] float32.
const float* vector_of(const Weight& weight);

}  // namespace troupe::kernels
