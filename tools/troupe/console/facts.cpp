#include "tools/troupe/console/facts.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>
#include <unordered_map>
#include <utility>

namespace troupe::console {
namespace {

using nlohmann::json;

/// A layer has at most this many experts; what says more is not believed.
constexpr std::int64_t kExpertsMax = 1 << 16;
/// The head remembers a lost node for as long as it lives; for people it is news for so long.
constexpr std::int64_t kLostNewsMs = 10 * 60 * 1000;

/// The member, or null if there is none.
const json& member(const json& object, const char* key) {
  static const json null;
  if (!object.is_object()) return null;
  const auto found = object.find(key);
  return found == object.end() ? null : *found;
}

std::optional<double> number_of(const json& value) {
  if (!value.is_number()) return std::nullopt;
  const double number = value.get<double>();
  return std::isfinite(number) ? std::optional(number) : std::nullopt;
}
double number(const json& object, const char* key) {
  return number_of(member(object, key)).value_or(0);
}
std::int64_t integer_of(const json& value) {
  if (value.is_number_integer()) return value.get<std::int64_t>();
  return static_cast<std::int64_t>(std::clamp(number_of(value).value_or(0), -9e18, 9e18));
}
std::int64_t integer(const json& object, const char* key) {
  return integer_of(member(object, key));
}
std::uint64_t bytes(const json& object, const char* key) {
  return static_cast<std::uint64_t>(std::max<std::int64_t>(0, integer(object, key)));
}
/// Ids are strings for some and numbers for others.
std::string text_of(const json& value) {
  if (value.is_string()) return value.get<std::string>();
  return value.is_number_integer() ? std::to_string(value.get<std::int64_t>()) : std::string();
}
std::string text(const json& object, const char* key) { return text_of(member(object, key)); }

std::vector<std::string> texts(const json& object, const char* key) {
  std::vector<std::string> out;
  if (const json& list = member(object, key); list.is_array())
    for (const auto& item : list) out.push_back(text_of(item));
  return out;
}

/// Calls `read` with every item of a list that is there.
template <class Read>
void each(const json& object, const char* key, Read read) {
  if (const json& list = member(object, key); list.is_array())
    for (const auto& item : list) read(item);
}

NodeFacts read_node(const json& j) {
  NodeFacts node;
  node.id = text(j, "id");
  node.host = text(j, "host");
  node.state = text(j, "state");
  node.role = text(j, "role");
  node.version = text(j, "version");
  node.fabric = text(j, "fabric");
  node.lost_reason = text(j, "lost_reason");
  node.pid = integer(j, "pid");
  node.incarnation = integer(j, "incarnation");
  node.last_seen_ms = integer(j, "last_seen_ms");
  node.load_done = bytes(member(j, "load"), "bytes_done");
  node.load_total = bytes(member(j, "load"), "bytes_total");
  each(j, "devices", [&](const json& d) {
    const json& slow = member(d, "slow");
    DeviceFacts& device = node.devices.emplace_back(DeviceFacts{
        text(d, "id"), text(d, "kind"), text(d, "name"), text(d, "failed"), text(d, "throttled"),
        bytes(d, "memory_total"), bytes(d, "memory_used"),
        std::clamp(number(d, "utilization"), 0.0, 1.0), slow.is_boolean() && slow.get<bool>()});
    if (d.is_object() && d.contains("temperature_c"))
      device.temperature_c = integer(d, "temperature_c");
    device.ecc_errors = integer(d, "ecc_errors");
  });
  return node;
}

ReplicaFacts read_replica(const json& j) {
  ReplicaFacts replica;
  replica.id = text(j, "id");
  replica.state = text(j, "state");
  replica.running = integer(j, "running");
  replica.waiting = integer(j, "waiting");
  replica.kv_total = integer(j, "kv_blocks_total");
  replica.kv_used = integer(j, "kv_blocks_used");
  replica.kv_cached = integer(j, "kv_blocks_cached");
  replica.preemptions = integer(j, "preemptions");
  each(j, "shards", [&](const json& s) {
    ShardFacts shard{0, 0, integer(s, "tp_rank"), 1, text(s, "device")};
    if (const json& layers = member(s, "layers"); layers.is_array() && layers.size() == 2) {
      shard.first = integer_of(layers[0]);
      shard.last = integer_of(layers[1]);
    }
    replica.shards.push_back(std::move(shard));
  });
  for (ShardFacts& shard : replica.shards)
    shard.tp_ranks = std::count_if(replica.shards.begin(), replica.shards.end(),
                                   [&](const auto& s) { return s.first == shard.first; });
  return replica;
}

/// Where the experts are: a list of layers.
ExpertFacts read_placement(const json& layers) {
  ExpertFacts experts;
  if (!layers.is_array()) return experts;
  std::unordered_map<std::string, std::uint32_t> known;
  for (const auto& l : layers) {
    LayerFacts layer;
    layer.layer = integer(l, "layer");
    each(l, "slots", [&](const json& s) {
      const std::int64_t expert = integer(s, "expert");
      if (expert < 0 || expert >= kExpertsMax) return;
      experts.experts = std::max(experts.experts, static_cast<std::int32_t>(expert) + 1);
      const auto [device, added] =
          known.try_emplace(text(s, "device"), static_cast<std::uint32_t>(known.size()));
      if (added) experts.devices.push_back(device->first);
      layer.slots.push_back({static_cast<std::int32_t>(expert), device->second});
    });
    std::sort(layer.slots.begin(), layer.slots.end());
    experts.layers.push_back(std::move(layer));
  }
  return experts;
}

ExpertFacts read_experts(const json& j, ExpertFacts placed) {
  ExpertFacts experts = std::move(placed);
  experts.copies = integer(j, "copies");
  experts.imbalance = number_of(member(j, "imbalance"));
  experts.last_rebalance_s = number_of(member(j, "last_rebalance_s"));
  experts.moves_pending = integer(j, "moves_pending");
  experts.experts = std::max(experts.experts, static_cast<std::int32_t>(std::clamp<std::int64_t>(
                                                  integer(j, "experts"), 0, kExpertsMax)));
  const auto count = static_cast<std::size_t>(experts.experts);
  each(j, "load", [&](const json& l) {
    for (LayerFacts& layer : experts.layers)
      if (layer.layer == integer(l, "layer"))
        each(l, "tokens", [&](const json& t) {
          if (layer.tokens.size() < count)
            layer.tokens.push_back(std::max(0.0, number_of(t).value_or(0)));
        });
  });
  for (LayerFacts& layer : experts.layers)
    if (!layer.tokens.empty()) layer.tokens.resize(count, 0.0);
  return experts;
}

/// The list that stands in a status behind "placement", or an empty text. A quote within a string
/// is escaped, so that only a name can look like this one.
std::string_view placement_in(std::string_view status) {
  constexpr std::string_view kName = "\"placement\":[";
  const std::size_t name = status.find(kName);
  if (name == status.npos) return {};
  const std::size_t begin = name + kName.size() - 1;
  std::size_t depth = 0;
  bool in_string = false;
  for (std::size_t i = begin; i < status.size(); ++i) {
    const char c = status[i];
    if (in_string) {
      if (c == '\\') ++i;
      in_string = c != '"';
    } else if (c == '"') {
      in_string = true;
    } else if (c == '[') {
      ++depth;
    } else if (c == ']' && --depth == 0) {
      return status.substr(begin, i + 1 - begin);
    }
  }
  return {};
}

std::optional<QuantileFacts> read_quantiles(const json& j) {
  const auto p50 = number_of(member(j, "p50")), p99 = number_of(member(j, "p99"));
  if (!p50 || !p99) return std::nullopt;
  return QuantileFacts{*p50, *p99};
}

void read_requests(const json& j, Facts& facts) {
  facts.running = integer(j, "running");
  facts.waiting = integer(j, "waiting");
  facts.finished = integer(j, "finished");
  facts.failed = integer(j, "failed");
  facts.replayed = integer(j, "replayed");
  const json& rates = member(j, "rates");
  facts.rates_known = rates.is_object();
  facts.prompt_tokens_per_s = number(rates, "prompt_tokens_per_s");
  facts.generation_tokens_per_s = number(rates, "generation_tokens_per_s");
  facts.first_token_ms = read_quantiles(member(rates, "ttft_ms"));
  facts.inter_token_ms = read_quantiles(member(rates, "inter_token_ms"));
  each(j, "list", [&](const json& r) {
    RequestFacts request;
    request.id = bytes(r, "id");
    request.state = text(r, "state");
    if (const json& replica = member(r, "replica"); replica.is_number())
      request.replica = integer_of(replica);
    request.prompt_tokens = integer(r, "prompt_tokens");
    request.tokens = integer(r, "tokens");
    request.replays = integer(r, "replays");
    request.age_s = number(r, "age_s");
    facts.requests.push_back(std::move(request));
  });
}

ProofFacts read_proofs(const json& j) {
  return {integer(j, "parts"), integer(j, "proven"), integer(j, "refused"),
          number_of(member(j, "oldest_s")), number_of(member(j, "round_s"))};
}

LinkFacts read_link(const json& j) {
  LinkFacts link;
  const auto nodes = texts(j, "nodes"), interfaces = texts(j, "interfaces");
  if (nodes.size() == 2) link.lower = nodes[0], link.higher = nodes[1];
  if (interfaces.size() == 2)
    link.interface =
        interfaces[0] == interfaces[1] ? interfaces[0] : interfaces[0] + "/" + interfaces[1];
  link.provider = text(j, "provider");
  link.error = text(j, "error");
  link.round_trip_us = number(member(j, "round_trip_us"), "p50");
  link.age_s = number(j, "age_s");
  each(j, "rates", [&](const json& rate) {  // the largest tensors last
    const double slower =
        std::min(number(rate, "there_bytes_per_s"), number(rate, "back_bytes_per_s"));
    if (slower > 0) link.bytes_per_s = slower;
  });
  return link;
}

void read_cluster(const json& j, Facts& facts) {
  facts.id = text(j, "id");
  facts.state = text(j, "state");
  facts.version = text(j, "version");
  facts.model = text(j, "model");
  facts.numerics = text(j, "numerics");
  facts.message = text(j, "message");
  facts.uptime_s = number(j, "uptime_s");
  if (const json& version = member(j, "placement_version"); version.is_number())
    facts.placement_version = integer_of(version);
  const json& standby = member(j, "standby");
  facts.standby = {text(standby, "address"), text(standby, "state")};
  const json& survives = member(j, "survives");
  facts.survives = {survives.is_object(), texts(survives, "at_once"),
                    texts(survives, "with_reload"), texts(survives, "not")};
}

}  // namespace

std::string DeviceFacts::about() const {
  std::string out = name;
  const auto add = [&](const std::string& part) { out += (out.empty() ? "" : ", ") + part; };
  if (temperature_c) add(std::to_string(*temperature_c) + " °C");
  if (!throttled.empty()) add("throttled: " + throttled);
  if (ecc_errors > 0)
    add(std::to_string(ecc_errors) + (ecc_errors == 1 ? " memory error" : " memory errors"));
  return out;
}

double NodeFacts::utilization() const {
  double sum = 0;
  for (const auto& device : devices) sum += device.utilization;
  return devices.empty() ? 0 : sum / static_cast<double>(devices.size());
}
std::uint64_t NodeFacts::memory_total() const {
  std::uint64_t sum = 0;
  for (const auto& device : devices) sum += device.memory_total;
  return sum;
}
std::uint64_t NodeFacts::memory_used() const {
  std::uint64_t sum = 0;
  for (const auto& device : devices) sum += device.memory_used;
  return sum;
}

std::size_t LayerFacts::copies(std::int32_t expert) const {
  const auto first = std::lower_bound(slots.begin(), slots.end(), Slot{expert, 0});
  const auto last = std::lower_bound(first, slots.end(), Slot{expert + 1, 0});
  return static_cast<std::size_t>(last - first);
}

const LayerFacts* ExpertFacts::find(std::int64_t layer) const {
  const auto found =
      std::find_if(layers.begin(), layers.end(), [&](const auto& l) { return l.layer == layer; });
  return found == layers.end() ? nullptr : &*found;
}

const NodeFacts* Facts::find_node(std::string_view id) const {
  const auto found =
      std::find_if(nodes.begin(), nodes.end(), [&](const auto& n) { return n.id == id; });
  return found == nodes.end() ? nullptr : &*found;
}
const RequestFacts* Facts::find_request(std::uint64_t id) const {
  const auto found =
      std::find_if(requests.begin(), requests.end(), [&](const auto& r) { return r.id == id; });
  return found == requests.end() ? nullptr : &*found;
}

Result<Facts> read_facts(std::string_view status_json) { return FactsReader().read(status_json); }

Result<Facts> FactsReader::read(std::string_view status_json) {
  const std::string_view placement = placement_in(status_json);
  std::string rest(status_json);
  if (!placement.empty())
    rest.replace(static_cast<std::size_t>(placement.data() - status_json.data()), placement.size(),
                 "[]");
  const json j = json::parse(rest, nullptr, false);
  if (!j.is_object()) return corrupt("The head's status is not JSON.");
  if (!placement.empty() && placement != placement_) {
    const json layers = json::parse(placement, nullptr, false);
    if (layers.is_discarded()) return corrupt("The head's status is not JSON.");
    placed_ = read_placement(layers);
    placement_ = placement;
  }
  Facts facts;
  read_cluster(member(j, "cluster"), facts);
  each(j, "nodes", [&](const json& n) { facts.nodes.push_back(read_node(n)); });
  std::erase_if(facts.nodes, [](const NodeFacts& node) {
    return node.state == "lost" && node.last_seen_ms > kLostNewsMs;
  });
  each(j, "replicas", [&](const json& r) { facts.replicas.push_back(read_replica(r)); });
  const json& experts = member(j, "experts");
  facts.experts = read_experts(
      experts, placement.empty() ? read_placement(member(experts, "placement")) : placed_);
  read_requests(member(j, "requests"), facts);
  facts.proofs = read_proofs(member(j, "proofs"));
  each(j, "network", [&](const json& l) { facts.links.push_back(read_link(l)); });
  std::ranges::stable_sort(facts.links, {}, [](const LinkFacts& link) {
    return std::pair(link.error.empty(), link.bytes_per_s);
  });
  each(j, "events", [&](const json& e) {
    facts.events.push_back({number(e, "time"), text(e, "kind"), text(e, "text")});
  });
  return facts;
}

}  // namespace troupe::console
