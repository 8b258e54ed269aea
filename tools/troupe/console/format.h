#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/console/facts.h"

/// Numbers as people read them, for the console and `troupe status`.
namespace troupe::console {

std::string short_bytes(std::uint64_t bytes);  ///< "11.8G", six columns at most
std::string short_time(double seconds);        ///< "4.2s", "2m03s", "5h12m", "3d04h"
std::string short_number(double number);       ///< "0.4", "843", "12.3k"
std::string percent(double fraction);          ///< "45%"
/// "12/40": the median and the 99th percentile; "-" if nothing was measured.
std::string quantiles(const std::optional<QuantileFacts>& ms);
std::string clock_time(double unix_s, int utc_offset_s);  ///< "14:03:22"

/// "node-1, node-2 and 3 more": some of a list that may be long.
std::string some_of(const std::vector<std::string>& words, std::size_t shown_max);
/// What the cluster survives, as one clause; empty if the head does not say.
std::string survives_text(const Facts& facts);
/// "312 of 312 parts proven, ...": how much of the weights, and when; empty if the head does not
/// say.
std::string proofs_text(const Facts& facts);
/// "tokens/s in 12 out 843   ms p50/p99: ...": rates, latencies; empty if the head does not say.
std::string rates_text(const Facts& facts);
/// What was last measured of the links between nodes: all, or the median and the worst of many.
std::vector<std::string> network_lines(const Facts& facts);
std::string requests_text(const Facts& facts);
/// "10.0.0.2:6379 copying": where it listens, and how far it is; empty if there is none.
std::string standby_text(const Facts& facts);
/// "4 layers of 32", "40 copies a layer", ..., the weightiest first; none for a model without
/// experts.
std::vector<std::string> expert_clauses(const Facts& facts);
std::string joined(const std::vector<std::string>& words, std::string_view separator);
/// "250 of 1000, 740 kept": blocks that sequences use, and those of prefixes that are kept.
std::string kv_text(const ReplicaFacts& replica);
std::string kv_short(const ReplicaFacts& replica);    ///< "250+740/1.0k", 18 columns at most
std::string shard_text(const ShardFacts& shard);  ///< "0-4 node-1/0", "0-4 rank 1 of 2 node-1/0"
std::string ranges(const std::vector<int>& numbers);  ///< sorted: "0-3,7"

}  // namespace troupe::console
