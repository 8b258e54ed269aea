#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace troupe {

/// How much a replica still has to do, as the Router sees it.
struct ReplicaLoad {
  std::uint32_t id = 0;
  std::uint64_t outstanding_tokens = 0;  ///< rows that its sequences may still need
  bool operator==(const ReplicaLoad&) const = default;
};

/// The replica that gets the next sequence: the one with the least outstanding tokens, ties to the
/// lowest id. None if there is no replica.
std::optional<std::uint32_t> pick_replica(std::span<const ReplicaLoad> replicas);

}  // namespace troupe
