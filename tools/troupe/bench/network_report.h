#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "transport/link_messages.h"

namespace troupe::bench {

/// What a head said of the links between its workers.
struct NetworkRun {
  NetworkPlan plan;
  std::vector<PairReport> pairs;  ///< as they came
  double duration_s = 0;
  bool complete = false;  ///< the head said that it is over
};

/// Of a pair of nodes, by what both told of themselves.
struct LinkChoice {
  std::string provider;                 ///< empty: they chose different ones
  std::vector<std::string> candidates;  ///< providers that work at both, best first
  std::string text;                     ///< "net: the only provider that both have", and the like
};
LinkChoice link_choice(const NetworkNode& a, const NetworkNode& b);

/// Of the slower of both nodes' adapters, one way; 0: it is not known of one, or both are of one
/// machine, within which nothing goes over a link.
std::uint64_t port_bits_per_s(const FabricPort& port);
std::uint64_t link_bits_per_s(const NetworkNode& a, const NetworkNode& b);

enum class PairState { kMeasured, kNoLink, kFailed };
PairState state_of(const PairReport& pair);

/// A tensor's size, over all measured pairs and both directions; 0: none was measured.
struct SizeSummary {
  std::uint32_t bytes = 0;
  double median = 0;  ///< bytes a second
};
struct NetworkSummary {
  std::size_t measured = 0, no_link = 0, failed = 0;
  double median_p50_us = 0;
  std::vector<SizeSummary> sizes;
  /// Of `run.pairs`, by index, those that were measured: the slowest by least_rate() first.
  std::vector<std::size_t> slowest;
  /// Of each of `run.pairs`: what is far from the median. Only where three or more were measured.
  std::vector<std::vector<std::string>> outliers;
};
/// A round trip of twice the median, or half of its rate, is far.
inline constexpr double kFar = 2;
NetworkSummary summarize(const NetworkRun& run);

/// Bytes a second of a pair: the smaller of both directions at the largest size that was measured;
/// 0: none was.
double least_rate(const PairReport& pair);
/// least_rate() as a part of link_bits_per_s(); 0: not known.
double link_share(const PairReport& pair, const NetworkNode& a, const NetworkNode& b);

std::string network_json(const NetworkRun& run);
/// For people: nodes, pairs, what stands out. Ends with a line end.
std::string network_text(const NetworkRun& run);

}  // namespace troupe::bench
