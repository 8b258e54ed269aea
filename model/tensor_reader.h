#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/checkpoint.h"
#include "model/tensor_hash.h"
#include "runtime/result.h"

namespace troupe {

/// The rows of one tensor on their way into memory, digested and looked through for NaN and
/// infinities as they come: one pass over the bytes.
///
///     open ─► read, until all rows have come ─► finish
class TensorReader {
 public:
  /// What the numbers must be.
  enum class Check : std::uint8_t {
    kFinite,  ///< no NaN, no infinity; whole numbers are all fine
    kScales,  ///< above zero too, and below 2^100
  };
  /// A matrix [n, ...], or a vector [k]: one row.
  static Result<TensorReader> open(const Checkpoint& checkpoint, const std::string& name,
                                   Check check = Check::kFinite);

  DType dtype() const { return tensor_.dtype; }
  /// As they are handed out: blocks are expanded.
  std::size_t row_bytes() const { return row_bytes_; }
  std::size_t bytes() const { return static_cast<std::size_t>(rows_) * row_bytes_; }
  std::int64_t rows_left() const { return rows_ - row_; }
  /// Fills `out` with the next rows, whole ones.
  Status read(std::span<std::byte> out);
  /// After the last row: what was read, if its file is what it was. Without `packed`.
  Result<TensorProof> finish() const;
  /// What is wrong with a number there: "FILE: tensor NAME holds WHAT at [row, column], ...".
  Error wrong(std::string_view what, std::int64_t row, std::size_t byte_in_row) const;

 private:
  TensorReader(const Checkpoint& checkpoint, StoredTensor tensor, Check check);
  /// The next rows as they are stored.
  Status fetch(std::span<std::byte> stored);
  void expand(std::span<const std::byte> stored, std::span<std::byte> out) const;
  Status look(std::span<const std::byte> rows) const;

  const Checkpoint* checkpoint_;
  StoredTensor tensor_;
  Check check_;
  TensorHash hash_;
  std::int64_t rows_ = 1, row_ = 0;
  std::size_t row_bytes_ = 0, stored_row_bytes_ = 0;
  std::vector<std::byte> blocks_;  ///< rows of them, before they are expanded
};

}  // namespace troupe
