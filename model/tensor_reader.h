#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

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
  /// A matrix [n, k], or a vector [k]: one row.
  static Result<TensorReader> open(const Checkpoint& checkpoint, const std::string& name,
                                   std::span<const std::int64_t> shape);

  DType dtype() const { return tensor_.info->dtype; }
  std::size_t row_bytes() const { return row_bytes_; }
  std::int64_t rows_left() const { return rows_ - row_; }
  /// Fills `out` with the next rows, whole ones.
  Status read(std::span<std::byte> out);
  /// After the last row: what was read, if its file is what it was. Without `packed`.
  Result<TensorProof> finish() const;

 private:
  TensorReader(const Checkpoint& checkpoint, const StoredTensor& tensor);
  Status check(std::span<const std::byte> rows) const;

  const Checkpoint* checkpoint_;
  StoredTensor tensor_;
  TensorHash hash_;
  std::int64_t rows_ = 1, row_ = 0;
  std::size_t row_bytes_ = 0;
};

}  // namespace troupe
