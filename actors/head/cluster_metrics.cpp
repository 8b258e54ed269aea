#include "actors/head/cluster_metrics.h"

#include <algorithm>
#include <utility>

namespace troupe {

void ClusterMetrics::update(const Supervisor& supervisor, const ControlStats& lane,
                            Metrics& metrics) {
  std::uint64_t ready = 0;
  std::int64_t total = 0, used = 0;
  std::map<std::uint32_t, std::uint64_t> preemptions;
  std::map<DeviceRef, std::uint64_t> reads;
  for (const auto& [id, member] : supervisor.members()) {
    ready += member.state == MemberState::kReady;
    for (const auto& replica : member.replicas) {
      total += replica.kv_blocks_total;
      used += replica.kv_blocks_used;
      preemptions[replica.replica] = replica.preemptions;
    }
    for (std::uint32_t i = 0; i < member.devices.size(); ++i)
      reads[{id, i}] = member.devices[i].experts_read;
  }
  for (const auto& [replica, count] : preemptions)
    metrics.add_preemptions(count - std::min(count, preemptions_[replica]));
  preemptions_.swap(preemptions);
  for (const auto& [device, count] : reads)
    metrics.add_expert_reads(count - std::min(count, reads_[device]));
  reads_.swap(reads);
  const auto& counters = supervisor.counters();
  const std::uint64_t refused = lane.strangers_refused + counters.refused_joins;
  for (; refused_ < refused; ++refused_) metrics.on_refused_node();
  for (; garbage_ < lane.garbage; ++garbage_) metrics.on_garbage_connection();
  for (; recoveries_ < counters.recoveries; ++recoveries_) metrics.on_recovery();
  metrics.add_expert_moves(counters.moves - std::exchange(moves_, counters.moves));
  metrics.set_nodes(ready);
  metrics.set_kv_cache_usage(total > 0 ? static_cast<double>(used) / static_cast<double>(total)
                                       : 0.0);
}

}  // namespace troupe
