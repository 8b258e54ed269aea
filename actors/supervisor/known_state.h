#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "runtime/ids.h"
#include "runtime/numerics.h"
#include "runtime/tensor_proof.h"

namespace troupe {

/// A tensor as the cluster knows it.
struct KnownTensor {
  TensorProof proof;
  bool confirmed = false;  ///< two nodes, or a node and the head, have read the same
};

/// What the canary gives: see CanaryResult.
struct KnownCanary {
  std::vector<TokenId> tokens;
  std::vector<std::uint64_t> digests;
  bool settled = false;      ///< two nodes have given it
  std::uint32_t prompt = 0;  ///< the tokens of its prompt
  /// Whether it says the same, settled or not.
  bool says(const KnownCanary& other) const {
    return tokens == other.tokens && digests == other.digests;
  }
};

/// What a head has found out, and a later life of it must hold to until the cluster is stopped.
struct KnownState {
  std::optional<Numerics> numerics;
  std::vector<KnownTensor> tensors;
  std::optional<KnownCanary> canary;
};

}  // namespace troupe
