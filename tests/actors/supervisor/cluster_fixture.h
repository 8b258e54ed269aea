#pragma once

#include <algorithm>

#include "tests/actors/supervisor/head_fixture.h"

namespace troupe::testing {

/// A head with workers that do at once what they are told.
struct Cluster : Head {
  explicit Cluster(int workers, SupervisorOptions o = options())
      : Head(with(std::move(o), workers)) {
    for (int w = 1; w <= workers; ++w) add(w);
    if (workers == 0) return;
    settle();
    REQUIRE(s.state() == ClusterState::kReady);
  }

  static SupervisorOptions with(SupervisorOptions o, int workers) {
    if (workers > 0) o.engine.min_devices = workers;
    return o;
  }

  Address add(int w, Join j) {
    const auto address = join(static_cast<std::uint32_t>(w), j);
    REQUIRE(address);
    note();
    workers[w] = *address;
    return *address;
  }
  Address add(int w) { return add(w, good_join(100 + w)); }

  void note() {
    for (const auto& send : all<Send>(last)) inbox.push_back(send);
    if (const auto news = router_hears<ReplicasLost>()) lost = news;
    if (const auto news = router_hears<ReplicasChanged>()) routes = *news;
    if (const auto news = router_hears<AdmissionChanged>()) admission = *news;
  }

  /// Answers what the head sends until it has nothing more to say.
  void settle() {
    while (!inbox.empty()) {
      const Send send = inbox.front();
      inbox.erase(inbox.begin());
      const bool alive = std::any_of(workers.begin(), workers.end(),
                                     [&](const auto& w) { return w.second == send.to; });
      if (!alive) continue;
      if (const auto* load = std::get_if<Load>(send.message.get())) {
        ++loads;
        if (!frozen) answer(*load, send.to);
      } else if (const auto* activate = std::get_if<Activate>(send.message.get())) {
        from(send.to, Activated{activate->version});
        note();
      } else if (const auto* retire = std::get_if<Retire>(send.message.get())) {
        retired.push_back(retire->version);
      } else if (std::holds_alternative<Stop>(*send.message)) {
        stopped.push_back(send.to.node);
        if (breaks_off) {
          for (const auto& [w, address] : workers)
            if (address == send.to) down(static_cast<std::uint32_t>(w));
        } else {
          from(send.to, Leave{"drained"});
        }
        note();
        std::erase_if(workers, [&](const auto& w) { return w.second == send.to; });
      }
    }
  }
  /// Reads what is new to it, if its storage lets it.
  void answer(const Load& load, const Address& at) {
    step_tokens.push_back(load.engine.max_num_batched_tokens);
    const bool reads = gives_new(load.placement, at.node);
    if (reads && denied.contains(at.node))
      from(at, LoadFailed{load.placement.version, denial});
    else if ((reads && hanging.contains(at.node)) || wedged.contains(at.node))
      from(at, LoadProgress{load.placement.version, reads ? 0u : 10u, 10});
    else
      from(at, Loaded{load.placement.version});
    note();
  }
  bool gives_new(const Placement& placement, NodeId node) const {
    const auto had = [&](const LayerExperts& layer, const ExpertSlot& slot) {
      for (const auto& now : s.active() ? s.active()->experts : std::vector<LayerExperts>{})
        if (now.layer == layer.layer &&
            std::find(now.slots.begin(), now.slots.end(), slot) != now.slots.end())
          return true;
      return false;
    };
    for (const auto& layer : placement.experts)
      for (const auto& slot : layer.slots)
        if (slot.device.node == node && !had(layer, slot)) return true;
    return false;
  }
  void kill(int w) {
    workers.erase(w);
    down(static_cast<std::uint32_t>(w));
    note();
  }
  /// Time passes, and everyone renews.
  void pass(Duration d) {
    for (const auto end = now + d; now < end;) {
      for (const auto& [w, address] : workers) {
        DeviceReport report;
        report.probe_us = probe.contains(w) ? probe.at(w) : 100;
        report.failed = failed.contains(w) ? "ECC error" : "";
        ++sequence;
        from(address, Renew{sequence, {report}, {}, {}, sequence - 1});
        note();
      }
      wait(100ms);
      note();
      settle();
    }
  }
  std::size_t slots_on(NodeId node) const {
    std::size_t n = 0;
    for (const auto& layer : s.active()->experts)
      for (const auto& slot : layer.slots) n += slot.device.node == node ? 1 : 0;
    return n;
  }
  bool says(const std::string& kind) const {
    return std::any_of(s.events().begin(), s.events().end(),
                       [&](const auto& e) { return e.kind == kind; });
  }

  std::map<int, Address> workers;
  std::map<int, std::uint32_t> probe;
  std::set<int> failed;
  std::vector<std::int32_t> step_tokens;  ///< of every Load
  std::set<NodeId> denied;   ///< nodes whose reads fail
  Error denial = unavailable("EACCES");
  std::set<NodeId> hanging;  ///< nodes whose reads do not end
  std::set<NodeId> wedged;   ///< nodes whose loads do not end, even with nothing to read
  std::vector<Send> inbox;
  std::optional<ReplicasLost> lost;
  ReplicasChanged routes;
  AdmissionChanged admission;
  std::vector<NodeId> stopped;
  std::vector<PlacementVersion> retired;  ///< as each member heard
  std::uint64_t sequence = 0;
  int loads = 0;
  bool frozen = false;      ///< nobody gets to the end of a load
  bool breaks_off = false;  ///< who is told to end does so at once
};

}  // namespace troupe::testing
