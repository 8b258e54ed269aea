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
  std::uint64_t prefix_tokens = 0;       ///< of the sequence, that it has probably computed before
  bool operator==(const ReplicaLoad&) const = default;
};

/// One that a replica need not compute is worth so many outstanding ones: these are the most that
/// may come, and are computed beside others, while a prompt's rows hold everybody up.
inline constexpr std::uint64_t kPrefixTokenWorth = 4;

/// The replica that gets the next sequence: of those that are neither shunned nor slow, if there
/// are such, the one with the least outstanding tokens less what it need not compute; of equals
/// the one with the least outstanding tokens, then the lowest id. None if there is no replica.
std::optional<std::uint32_t> pick_replica(std::span<const ReplicaLoad> replicas);

}  // namespace troupe
