#pragma once

#include <cstdint>
#include <optional>
#include <span>

namespace troupe {

/// How much a replica still has to do, as the Router sees it.
struct ReplicaLoad {
  std::uint32_t id = 0;
  std::uint64_t outstanding_tokens = 0;  ///< rows that its sequences may still need
  bool shunned = false;                  ///< only if there is no other: it refused the sequence
  bool slow = false;                     ///< only if all others are slow, too, or shunned
  bool operator==(const ReplicaLoad&) const = default;
};

/// The replica that gets the next sequence: of those that are neither shunned nor slow, if there
/// are such, the one with the least outstanding tokens, ties to the lowest id. None if there is no
/// replica.
std::optional<std::uint32_t> pick_replica(std::span<const ReplicaLoad> replicas);

}  // namespace troupe
