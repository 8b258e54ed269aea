#include "actors/supervisor/status.h"

#include <algorithm>
#include <cassert>
#include <chrono>
#include <nlohmann/json.hpp>
#include <set>

#include "actors/supervisor/experts_text.h"

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

std::int64_t milliseconds(Duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

Json node_json(const Supervisor& supervisor, const Member& member, TimePoint now) {
  Json devices = Json::array();
  for (std::size_t i = 0; i < member.inventory.devices.size(); ++i) {
    const auto& device = member.inventory.devices[i];
    const DeviceRef ref{member.id, static_cast<std::uint32_t>(i)};
    devices.push_back({{"id", to_string(ref)},
                       {"kind", device.kind},
                       {"memory_total", device.memory_total},
                       {"memory_used", member.devices[i].memory_used},
                       {"utilization", member.devices[i].utilization},
                       {"threads", device.threads},
                       {"slow", supervisor.slow(ref)}});
    Json& told = devices.back();
    if (!device.name.empty()) told["name"] = device.name;
    if (!member.devices[i].failed.empty()) told["failed"] = member.devices[i].failed;
    const DeviceHealth& health = member.devices[i].health;
    if (health.temperature_c) told["temperature_c"] = *health.temperature_c;
    if (health.ecc_errors) told["ecc_errors"] = *health.ecc_errors;
    if (!health.throttled.empty()) told["throttled"] = health.throttled;
  }
  Json node = {{"id", to_string(member.id)},
               {"host", member.inventory.host},
               {"pid", member.inventory.pid},
               {"role", member.inventory.role},
               {"state", to_string(member.state)},
               {"last_seen_ms", milliseconds(now - member.last_renew)},
               {"devices", std::move(devices)},
               {"incarnation", member.incarnation.value},
               {"version", member.inventory.version},
               {"certificate", member.certificate},
               {"fabric", member.inventory.fabric_description}};
  if (member.load_total > 0) {
    node["load"] = {{"bytes_done", member.load_done}, {"bytes_total", member.load_total}};
  }
  if (!member.lost_reason.empty()) node["lost_reason"] = member.lost_reason;
  return node;
}

Json nodes_json(const Supervisor& supervisor, TimePoint now) {
  Json nodes = Json::array();
  for (const auto& [id, member] : supervisor.members())
    nodes.push_back(node_json(supervisor, member, now));
  for (const auto& member : supervisor.gone()) nodes.push_back(node_json(supervisor, member, now));
  return nodes;
}

Json replica_json(const Supervisor& supervisor, const Placement& placement,
                  const ReplicaPlacement& replica, std::string_view state) {
  ReplicaReport report;
  const auto member = supervisor.members().find(replica.node);
  if (member != supervisor.members().end()) {
    for (const auto& r : member->second.replicas) {
      if (r.replica == replica.id) report = r;
    }
  }
  Json shards = Json::array();
  for (const auto& shard : placement.shards) {
    if (shard.replica != replica.id) continue;
    shards.push_back({{"layers", {shard.first_layer, shard.last_layer}},
                      {"tp_rank", shard.tp_rank},
                      {"device", to_string(shard.device)}});
  }
  const auto blocks = report.kv_blocks_total > 0 ? report.kv_blocks_total : replica.kv_blocks;
  return {{"id", replica.id},
          {"state", state},
          {"shards", std::move(shards)},
          {"running", report.running},
          {"waiting", report.waiting},
          {"kv_blocks_total", blocks},
          {"kv_blocks_used", report.kv_blocks_used},
          {"kv_blocks_cached", report.kv_blocks_cached},
          {"preemptions", report.preemptions}};
}

/// Those that serve, then those that the next version adds.
Json replicas_json(const Supervisor& supervisor) {
  Json replicas = Json::array();
  std::set<std::uint32_t> known;
  if (const Placement* active = supervisor.active()) {
    for (const auto& replica : active->replicas) {
      known.insert(replica.id);
      replicas.push_back(replica_json(supervisor, *active, replica,
                                      supervisor.proven(replica.id) ? "ready" : "proving"));
    }
  }
  if (const Placement* pending = supervisor.pending())
    for (const auto& replica : pending->replicas)
      if (known.insert(replica.id).second)
        replicas.push_back(replica_json(supervisor, *pending, replica, "loading"));
  return replicas;
}

/// Without the long parts, for which a mark stands at the end.
Json experts_json(const Supervisor& supervisor, TimePoint now) {
  std::size_t copies = 0, layers = 0;
  std::int32_t experts = 0;
  Json imbalance = nullptr, since = nullptr;
  if (supervisor.placement()) {
    layers = supervisor.placement()->experts.size();
    for (const auto& layer : supervisor.placement()->experts) {
      for (const auto& slot : layer.slots) experts = std::max(experts, slot.expert + 1);
      copies = std::max(copies, layer.slots.size());
    }
    const double worst =
        imbalance_of(supervisor.placement()->experts, supervisor.expert_load().tokens());
    if (worst > 0) imbalance = worst;
  }
  if (const auto last = supervisor.last_rebalance())
    since = static_cast<double>(milliseconds(now - *last)) / 1000;
  return {{"layers", layers},
          {"experts", experts},
          {"copies", copies},
          {"imbalance", imbalance},
          {"moves_pending", supervisor.moves_pending()},
          {"last_rebalance_s", since},
          {"placement", nullptr}};
}

/// Puts the long parts in. Quotes within a string are escaped: the mark is the one of above.
std::string with_long_parts(std::string status, const Supervisor& supervisor) {
  constexpr std::string_view kMark = "\"placement\":null";
  const auto at = status.find(kMark);
  assert(at != status.npos);
  const std::string placed =
      supervisor.placement() ? placement_text(supervisor.placement()->experts) : "[]";
  status.replace(
      at, kMark.size(),
      "\"load\":" + load_text(supervisor.expert_load().tokens()) + ",\"placement\":" + placed);
  return status;
}

Json survival_json(const Survival& survival) {
  const auto names = [](const std::vector<NodeId>& nodes) {
    Json list = Json::array();
    for (const NodeId node : nodes) list.push_back(to_string(node));
    return list;
  };
  return {{"at_once", names(survival.at_once)},
          {"with_reload", names(survival.with_reload)},
          {"not", names(survival.not_at_all)}};
}

Json quantiles_json(const std::optional<Quantiles>& quantiles) {
  if (!quantiles) return nullptr;
  return {{"p50", quantiles->p50}, {"p99", quantiles->p99}};
}

Json requests_json(const RequestCounters& requests, TimePoint now) {
  Json list = Json::array();
  for (const RequestSummary& request : requests.list) {
    list.push_back({{"id", request.id},
                    {"state", request.running ? "running" : "waiting"},
                    {"replica", request.replica ? Json(*request.replica) : Json(nullptr)},
                    {"prompt_tokens", request.prompt_tokens},
                    {"tokens", request.tokens},
                    {"age_s", static_cast<double>(milliseconds(now - request.accepted)) / 1000},
                    {"replays", request.replays}});
  }
  const RequestRates& rates = requests.rates;
  return {{"running", requests.running},
          {"waiting", requests.waiting},
          {"finished", requests.finished},
          {"failed", requests.failed},
          {"replayed", requests.replayed},
          {"rates",
           {{"prompt_tokens_per_s", rates.prompt_tokens_per_s},
            {"generation_tokens_per_s", rates.generation_tokens_per_s},
            {"ttft_ms", quantiles_json(rates.first_token_ms)},
            {"inter_token_ms", quantiles_json(rates.inter_token_ms)}}},
          {"list", std::move(list)}};
}

Json proofs_json(const Supervisor& supervisor) {
  ProofReport all;
  for (const auto& [id, member] : supervisor.members()) {
    all.parts += member.proofs.parts;
    all.proven += member.proofs.proven;
    all.oldest_s = std::max(all.oldest_s, member.proofs.oldest_s);
    all.round_s = std::max(all.round_s, member.proofs.round_s);
  }
  return {{"parts", all.parts},
          {"proven", all.proven},
          {"oldest_s", all.oldest_s},
          {"refused", supervisor.counters().refused_copies},
          {"round_s", all.round_s},
          {"known", supervisor.proofs().known()},
          {"unconfirmed", supervisor.proofs().unconfirmed()}};
}

Json known(double value) { return value > 0 ? Json(value) : Json(); }
Json known(const std::string& text) { return text.empty() ? Json() : Json(text); }

/// What was measured last of each pair. Both are members still.
Json network_json(const Supervisor& supervisor, TimePoint now) {
  Json pairs = Json::array();
  for (const auto& [pair, last] : supervisor.measured_links().all()) {
    const FabricPort& a = supervisor.members().at(pair.first).inventory.fabric_port;
    const FabricPort& b = supervisor.members().at(pair.second).inventory.fabric_port;
    const LinkFigures& figures = last.report.figures;
    Json rates = Json::array();
    for (const LinkRate& rate : figures.rates)
      rates.push_back({{"bytes", rate.bytes},
                       {"there_bytes_per_s", known(rate.there)},
                       {"back_bytes_per_s", known(rate.back)}});
    const bool measured = !last.report.error;
    pairs.push_back({{"nodes", {to_string(pair.first), to_string(pair.second)}},
                     {"provider", a.provider == b.provider ? a.provider : ""},
                     {"interfaces", {a.interface, b.interface}},
                     {"adapters", {known(a.adapter.name), known(b.adapter.name)}},
                     {"round_trip_us",
                      measured ? Json{{"p50", figures.p50_us}, {"p99", figures.p99_us}} : Json()},
                     {"rates", std::move(rates)},
                     {"requests_meanwhile", last.report.running},
                     {"error", measured ? Json() : Json(last.report.error->message)},
                     {"age_s", static_cast<double>(milliseconds(now - last.time)) / 1000}});
  }
  return pairs;
}

Json standby_json(const StandbyLink& standby) {
  if (standby.state() == StandbyLink::State::kNobody) return nullptr;
  return {{"address", standby.address()}, {"state", to_string(standby.shown())}};
}

}  // namespace

std::string status_json(const Supervisor& supervisor, const RequestCounters& requests,
                        TimePoint now) {
  const auto& options = supervisor.options();
  const auto& counters = supervisor.counters();
  Json cluster = {{"id", options.cluster_id},
                  {"state", to_string(supervisor.state())},
                  {"version", options.version},
                  {"model", options.model_name},
                  {"reasoning",
                   {{"style", options.reasoning_style}, {"open", options.reasoning_open}}},
                  {"numerics", nullptr},
                  {"uptime_s", static_cast<double>(milliseconds(now - options.started)) / 1000},
                  {"time", static_cast<double>(options.started_unix_ms +
                                               milliseconds(now - options.started)) / 1000},
                  {"message", supervisor.message()},
                  {"standby", standby_json(supervisor.standby())},
                  {"survives", survival_json(supervisor.survival())},
                  {"placement_version", nullptr},
                  {"counters",
                   {{"joined", counters.joined},
                    {"lost", counters.lost},
                    {"refused", counters.refused_joins},
                    {"refused_messages", counters.refused_messages},
                    {"garbage", counters.garbage},
                    {"unreachable_peers", counters.unreachable_peers},
                    {"recoveries", counters.recoveries},
                    {"expert_moves", counters.moves}}}};
  if (supervisor.numerics()) cluster["numerics"] = to_string(*supervisor.numerics());
  if (supervisor.placement()) {
    cluster["placement_version"] = supervisor.placement()->version.value;
  }
  Json events = Json::array();
  for (const auto& event : supervisor.events()) {
    events.push_back({{"time", static_cast<double>(event.time_unix_ms) / 1000},
                      {"kind", event.kind},
                      {"text", event.text}});
  }
  const Json status = {{"cluster", std::move(cluster)},
                       {"nodes", nodes_json(supervisor, now)},
                       {"replicas", replicas_json(supervisor)},
                       {"experts", experts_json(supervisor, now)},
                       {"requests", requests_json(requests, now)},
                       {"proofs", proofs_json(supervisor)},
                       {"network", network_json(supervisor, now)},
                       {"events", std::move(events)}};
  // What came from a worker may be no UTF-8.
  return with_long_parts(status.dump(-1, ' ', false, Json::error_handler_t::replace), supervisor);
}

}  // namespace troupe
