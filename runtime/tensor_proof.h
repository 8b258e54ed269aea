#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace troupe {

/// XXH3-128 of some bytes.
struct Digest {
  std::uint64_t low = 0;
  std::uint64_t high = 0;
  constexpr auto operator<=>(const Digest&) const = default;
};

/// What one tensor of the checkpoint was when a node read it.
struct TensorProof {
  std::string tensor;  ///< its name in the checkpoint
  std::string file;    ///< of the checkpoint's folder
  /// Of its bytes as stored: of each eighth of the axis that tensor parallelism splits, in order;
  /// of all of them if nothing splits it, or not into eighths.
  std::vector<Digest> stored;
  std::optional<Digest> packed;  ///< of what it became in memory
  bool operator==(const TensorProof&) const = default;
};

}  // namespace troupe
