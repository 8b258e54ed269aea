#pragma once

#include <string>

#include "tools/troupe/console/facts.h"

namespace troupe::console {

/// A cluster of three nodes with two replicas; layer 1 has two copies of expert 0.
inline const char* const kSample = R"({
"cluster": {"id": "c", "state": "ready", "version": "0.1.0", "model": "pocket", "numerics": "bf16",
  "uptime_s": 123.4, "message": "Serving pocket with 2 replicas.", "placement_version": 3,
  "standby": {"address": "d.example:6379", "state": "copying"},
  "survives": {"at_once": ["node-1", "node-2"], "with_reload": ["node-10"], "not": []}},
"nodes": [
  {"id": "node-10", "host": "c.example", "pid": 30, "role": "worker", "state": "ready",
   "last_seen_ms": 90, "incarnation": 5, "version": "0.1.0", "fabric": "tcp on eth0",
   "devices": [{"id": "node-10/0", "kind": "cpu", "memory_total": 1073741824,
                "memory_used": 1063741824, "utilization": 0.1, "slow": true}]},
  {"id": "node-2", "host": "b.example", "pid": 20, "role": "worker", "state": "ready",
   "last_seen_ms": 200, "devices": [
     {"id": "node-2/0", "kind": "cuda", "memory_total": 100, "memory_used": 50,
                "utilization": 0.9, "name": "NVIDIA H100", "temperature_c": 87,
                "throttled": "too hot", "ecc_errors": 1},
     {"id": "node-2/1", "kind": "cuda", "memory_total": 100, "memory_used": 10,
                "utilization": 0.8}]},
  {"id": "node-1", "host": "a.example", "pid": 10, "role": "worker", "state": "lost",
   "last_seen_ms": 5000, "lost_reason": "its lease ended", "devices": []}],
"replicas": [
  {"id": 0, "state": "ready", "shards": [{"layers": [0, 4], "tp_rank": 0, "device": "node-10/0"}],
   "running": 3, "waiting": 1, "kv_blocks_total": 1000, "kv_blocks_used": 250,
   "kv_blocks_cached": 740},
  {"id": 7, "state": "loading", "shards": [{"layers": [0, 1], "tp_rank": 0, "device": "node-2/0"},
    {"layers": [2, 4], "tp_rank": 0, "device": "node-2/1"}],
   "running": 0, "waiting": 0, "kv_blocks_total": 1000, "kv_blocks_used": 990}],
"experts": {"layers": 2, "experts": 4, "copies": 5, "imbalance": 1.25, "moves_pending": 2,
  "last_rebalance_s": 61, "placement":[
    {"layer": 1, "slots": [{"expert": 0, "device": "node-2/0"}, {"expert": 1, "device": "node-2/0"},
       {"expert": 2, "device": "node-2/1"}, {"expert": 0, "device": "node-10/0"},
       {"expert": 3, "device": "node-10/0"}]},
    {"layer": 2, "slots": [{"expert": 0, "device": "node-2/0"}, {"expert": 1, "device": "node-2/0"},
       {"expert": 2, "device": "node-2/1"}]}],
  "load": [{"layer": 1, "tokens": [900, 0, 50, 50]}, {"layer": 2, "tokens": [10, 10, 10, 10]}]},
"requests": {"running": 3, "waiting": 1, "finished": 40, "failed": 2, "replayed": 1,
  "rates": {"prompt_tokens_per_s": 12.25, "generation_tokens_per_s": 843.4,
            "ttft_ms": {"p50": 12.5, "p99": 40.1}, "inter_token_ms": null},
  "list": [{"id": 51, "state": "running", "replica": 0, "prompt_tokens": 11, "tokens": 30,
            "age_s": 1.5, "replays": 2},
           {"id": 52, "state": "waiting", "replica": null, "prompt_tokens": 9, "tokens": 0,
            "age_s": 0.5, "replays": 0}]},
"proofs": {"parts": 312, "proven": 312, "oldest_s": 41.5, "refused": 1},
"network": [
  {"nodes": ["node-10", "node-2"], "provider": "net", "interfaces": ["eth0", "ens1"],
   "adapters": [null, "mlx5_0"], "round_trip_us": {"p50": 41.4, "p99": 90},
   "rates": [{"bytes": 65536, "there_bytes_per_s": 9e9, "back_bytes_per_s": 8e9},
             {"bytes": 1048576, "there_bytes_per_s": 2.5e9, "back_bytes_per_s": 2.31e9},
             {"bytes": 16777216, "there_bytes_per_s": null, "back_bytes_per_s": null}],
   "requests_meanwhile": 0, "error": null, "age_s": 723.4}],
"events": [{"time": 1000000000, "kind": "node_joined", "text": "node-1 joined."},
           {"time": 1000000061.5, "kind": "node_lost", "text": "node-1 is lost."}]})";

inline Facts sample() { return read_facts(kSample).value(); }

}  // namespace troupe::console
