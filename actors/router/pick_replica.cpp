#include "actors/router/pick_replica.h"

#include <algorithm>
#include <tuple>

namespace troupe {

std::optional<std::uint32_t> pick_replica(std::span<const ReplicaLoad> replicas) {
  const auto least = std::min_element(
      replicas.begin(), replicas.end(), [](const ReplicaLoad& a, const ReplicaLoad& b) {
        return std::tie(a.shunned, a.slow, a.outstanding_tokens, a.id) <
               std::tie(b.shunned, b.slow, b.outstanding_tokens, b.id);
      });
  if (least == replicas.end()) return std::nullopt;
  return least->id;
}

}  // namespace troupe
