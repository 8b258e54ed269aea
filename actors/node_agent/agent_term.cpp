#include "actors/node_agent/agent_term.h"

#include "runtime/standby_limits.h"

namespace troupe {

void AgentTerm::joined(const std::string& cluster, Incarnation head) {
  newest_ = cluster == cluster_ ? std::max(newest_, head) : head;
  cluster_ = cluster;
  life_ = {};
  successor_ = {};
}

bool AgentTerm::outdated(const std::string& cluster, Incarnation head, TimePoint now) const {
  if (cluster_.empty() || cluster != cluster_) return false;
  return head < newest_ || (now < granted_until_ && head < granted_);
}

std::optional<Pledge> AgentTerm::pledge(const Standing& standing, TimePoint now) {
  const bool ours = standing.cluster_id == cluster_;
  // It asks no more for what was granted.
  if (ours && standing.term < granted_) granted_until_ = {};
  const bool asks = ours && standing.term > newest_;
  if (!asks || life_.id == NodeId{}) return std::nullopt;
  granted_ = std::max(granted_, standing.term);
  granted_until_ = now + limits::kPledge;
  return Pledge{standing.term, life_, successor_.standby};
}

}  // namespace troupe
