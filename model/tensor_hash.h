#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "model/checkpoint.h"
#include "runtime/xxh3.h"

namespace troupe {

/// The digests of a tensor's bytes as stored, taken as they come: of each eighth of the axis that
/// tensor parallelism splits, or of the whole (TensorProof::stored).
class TensorHash {
 public:
  explicit TensorHash(const StoredTensor& tensor);

  /// The next bytes, in the order of the file, cut anywhere.
  void add(std::span<const std::byte> bytes);
  std::vector<Digest> digests() const;

 private:
  std::vector<Xxh3> parts_;
  std::uint64_t run_ = 0;  ///< bytes of one part that lie together; then come the next part's
  std::uint64_t at_ = 0;
};

}  // namespace troupe
