#include "actors/router/pick_replica.h"

#include <algorithm>
#include <tuple>

namespace troupe {

std::optional<std::uint32_t> pick_replica(std::span<const ReplicaLoad> replicas) {
  const auto order = [](const ReplicaLoad& r) {
    const auto cost = static_cast<std::int64_t>(r.outstanding_tokens) -
                      static_cast<std::int64_t>(kPrefixTokenWorth * r.prefix_tokens);
    return std::tuple(r.shunned, r.slow, cost, r.outstanding_tokens, r.id);
  };
  const auto least = std::ranges::min_element(replicas, {}, order);
  if (least == replicas.end()) return std::nullopt;
  return least->id;
}

}  // namespace troupe
