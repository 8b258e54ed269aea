#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

/// What the status says of a cluster, as the console and `troupe status` show it. The JSON may come
/// from a head of another version: what is missing or of another kind keeps its default.
namespace troupe::console {

struct DeviceFacts {
  std::string id, kind, name, failed;  ///< `failed`: why it was taken out, if it was
  std::string throttled;               ///< why its clock is lower than it might be, if it is
  std::uint64_t memory_total = 0, memory_used = 0;
  double utilization = 0;  ///< 0 to 1
  bool slow = false;       ///< much slower than it was: weighed away from
  std::optional<std::int64_t> temperature_c = {};
  std::int64_t ecc_errors = 0;  ///< not corrected

  /// "NVIDIA H100, 64 °C, throttled: too hot, 2 memory errors"; what is not known is left out.
  std::string about() const;
  bool troubled() const { return !throttled.empty() || ecc_errors > 0; }
};

struct NodeFacts {
  std::string id, host, state, role, version, fabric, lost_reason;
  std::int64_t pid = 0, incarnation = 0, last_seen_ms = 0;
  std::uint64_t load_done = 0, load_total = 0;  ///< bytes of weights; total 0: nothing to load
  std::vector<DeviceFacts> devices;

  double utilization() const;  ///< mean of the devices
  std::uint64_t memory_total() const;
  std::uint64_t memory_used() const;
};

struct ShardFacts {
  std::int64_t first = 0, last = 0;        ///< layers, `last` included
  std::int64_t tp_rank = 0, tp_ranks = 1;  ///< of so many that share them
  std::string device;
};

struct ReplicaFacts {
  std::string id, state;
  std::vector<ShardFacts> shards;
  std::int64_t running = 0, waiting = 0, kv_total = 0, kv_used = 0, preemptions = 0;
  std::int64_t kv_cached = 0;  ///< of the blocks that are not used, those of prefixes that are kept
};

/// One layer's experts: where their copies are, and what each had to do of late.
struct LayerFacts {
  struct Slot {
    std::int32_t expert = 0;
    std::uint32_t device = 0;  ///< index into ExpertFacts::devices
    auto operator<=>(const Slot&) const = default;
  };
  std::int64_t layer = 0;
  std::vector<Slot> slots;     ///< sorted
  std::vector<double> tokens;  ///< by expert; empty: not measured

  std::size_t copies(std::int32_t expert) const;
};

struct ExpertFacts {
  std::int32_t experts = 0;  ///< of a layer
  std::int64_t copies = 0;   ///< slots of a layer
  std::optional<double> imbalance, last_rebalance_s;
  std::int64_t moves_pending = 0;
  std::vector<std::string> devices;  ///< names
  std::vector<LayerFacts> layers;

  const LayerFacts* find(std::int64_t layer) const;
};

struct QuantileFacts {
  double p50 = 0, p99 = 0;
};

struct RequestFacts {
  std::uint64_t id = 0;
  std::string state;
  std::optional<std::int64_t> replica;
  std::int64_t prompt_tokens = 0, tokens = 0, replays = 0;
  double age_s = 0;
};

struct EventFacts {
  double time_unix_s = 0;
  std::string kind, text;
};

/// What happens when one node dies, by node.
struct SurvivesFacts {
  bool known = false;
  std::vector<std::string> at_once, with_reload, not_at_all;
};

/// How much of the weights was read again and found as it was.
struct ProofFacts {
  std::int64_t parts = 0;          ///< pieces of weights that the cluster knows; 0: it does not say
  std::int64_t proven = 0;         ///< of these, in the last round
  std::int64_t refused = 0;        ///< copies taken out so far
  std::optional<double> oldest_s;  ///< age of the oldest last good proof
  std::optional<double> round_s;   ///< what a round in the background takes
};

/// What was last measured of the connection of two nodes.
struct LinkFacts {
  std::string lower, higher, provider;
  std::string interface;   ///< "eth0", "eth0/eth1" where they differ
  std::string error;       ///< why nothing was measured; empty: it was
  double bytes_per_s = 0;  ///< of the largest tensors, the slower way; 0: they were left out
  double round_trip_us = 0, age_s = 0;
};

/// The machine that follows the head, to take its place.
struct StandbyFacts {
  std::string address, state;  ///< "copying", "ready" or "leaving"; both empty: there is none
};

struct Facts {
  std::string id, state, version, model, numerics, message;
  double uptime_s = 0;
  std::optional<std::int64_t> placement_version;
  StandbyFacts standby;
  SurvivesFacts survives;
  std::vector<NodeFacts> nodes;  ///< of those that are lost, the ones of the last ten minutes
  std::vector<ReplicaFacts> replicas;
  ExpertFacts experts;
  std::int64_t running = 0, waiting = 0, finished = 0, failed = 0, replayed = 0;
  bool rates_known = false;
  double prompt_tokens_per_s = 0, generation_tokens_per_s = 0;
  std::optional<QuantileFacts> first_token_ms, inter_token_ms;
  std::vector<RequestFacts> requests;
  ProofFacts proofs;
  std::vector<LinkFacts> links;    ///< the slowest first, but those that failed before them
  std::vector<EventFacts> events;  ///< the newest last

  const NodeFacts* find_node(std::string_view id) const;
  const RequestFacts* find_request(std::uint64_t id) const;
};

/// Reads the status. Error: kCorrupt, if it is no JSON object.
Result<Facts> read_facts(std::string_view status_json);

/// Reads one status after the other. Where the experts are is most of the text and seldom changes:
/// it is only read again when it did.
class FactsReader {
 public:
  Result<Facts> read(std::string_view status_json);

 private:
  std::string placement_;  ///< as it was last
  ExpertFacts placed_;     ///< what it says
};

}  // namespace troupe::console
