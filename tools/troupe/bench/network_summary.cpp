#include <algorithm>
#include <cstdio>
#include <map>

#include "tools/troupe/bench/network_report.h"

namespace troupe::bench {
namespace {

constexpr std::size_t kMeasuredMin = 3;  ///< pairs; of fewer none is far from the others

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::sort(values.begin(), values.end());
  const std::size_t half = values.size() / 2;
  return values.size() % 2 == 1 ? values[half] : (values[half - 1] + values[half]) / 2;
}

std::string times(double factor) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2g", factor);
  return text;
}

std::string joined(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

/// Without the word "auto", which only says that nobody asked.
std::string why_of(const NetworkNode& node) {
  const std::string& why = node.port.provider_why;
  constexpr std::string_view kAuto = "auto: ";
  return why.starts_with(kAuto) ? why.substr(kAuto.size()) : why;
}

std::vector<std::string> outliers_of(const PairReport& pair, const NetworkSummary& summary) {
  std::vector<std::string> found;
  if (state_of(pair) != PairState::kMeasured) return found;
  if (summary.median_p50_us > 0 && pair.figures.p50_us >= kFar * summary.median_p50_us)
    found.push_back("round trip " + times(pair.figures.p50_us / summary.median_p50_us) +
                    " times the median");
  for (const LinkRate& rate : pair.figures.rates)
    for (const SizeSummary& size : summary.sizes) {
      if (size.bytes != rate.bytes || size.median <= 0) continue;
      for (const auto& [way, value] : {std::pair("there", rate.there), {"back", rate.back}})
        if (value * kFar <= size.median)
          found.push_back(std::to_string(rate.bytes >> 10) + " KiB " + way + " " +
                          (value > 0 ? times(value / size.median) + " of the median"
                                     : std::string("left out: too slow")));
    }
  return found;
}

}  // namespace

LinkChoice link_choice(const NetworkNode& a, const NetworkNode& b) {
  LinkChoice choice;
  for (const std::string& name : a.port.providers)
    if (std::count(b.port.providers.begin(), b.port.providers.end(), name) > 0)
      choice.candidates.push_back(name);
  if (a.port.provider.empty() || b.port.provider.empty()) {
    choice.text = "not known: a node has no bulk lane";
    return choice;
  }
  if (a.port.provider != b.port.provider) {
    choice.text = to_string(a.id) + " goes by " + a.port.provider + " and " + to_string(b.id) +
                  " by " + b.port.provider + ": start both with the same --fabric";
    return choice;
  }
  choice.provider = a.port.provider;
  std::string why;
  if (choice.candidates.size() == 1 && choice.candidates[0] == choice.provider)
    why = "the only provider that both have";
  else if (!choice.candidates.empty() && choice.candidates[0] == choice.provider)
    why = "the fastest of " + joined(choice.candidates) + ", which both have";
  else
    why = "though both have " + joined(choice.candidates);
  choice.text = choice.provider + ": " + why + "; " + why_of(a);
  if (why_of(a) != why_of(b)) choice.text += " (" + to_string(b.id) + ": " + why_of(b) + ")";
  return choice;
}

std::uint64_t port_bits_per_s(const FabricPort& port) {
  if (port.adapter.bits_per_s > 0) return port.adapter.bits_per_s;
  return port.speed_mbit > 0 ? static_cast<std::uint64_t>(port.speed_mbit) * 1'000'000 : 0;
}

std::uint64_t link_bits_per_s(const NetworkNode& a, const NetworkNode& b) {
  return a.host == b.host ? 0 : std::min(port_bits_per_s(a.port), port_bits_per_s(b.port));
}

PairState state_of(const PairReport& pair) {
  if (!pair.error) return PairState::kMeasured;
  return pair.error->code == ErrorCode::kNotFound ? PairState::kNoLink : PairState::kFailed;
}

double least_rate(const PairReport& pair) {
  for (auto rate = pair.figures.rates.rbegin(); rate != pair.figures.rates.rend(); ++rate)
    if (rate->there > 0 && rate->back > 0) return std::min(rate->there, rate->back);
  return 0;
}

double link_share(const PairReport& pair, const NetworkNode& a, const NetworkNode& b) {
  const std::uint64_t bits = link_bits_per_s(a, b);
  return bits == 0 ? 0 : 8 * least_rate(pair) / static_cast<double>(bits);
}

NetworkSummary summarize(const NetworkRun& run) {
  NetworkSummary summary;
  std::vector<double> trips;
  std::map<std::uint32_t, std::vector<double>> rates;
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const PairReport& pair = run.pairs[i];
    const PairState state = state_of(pair);
    if (state == PairState::kNoLink) ++summary.no_link;
    if (state == PairState::kFailed) ++summary.failed;
    if (state != PairState::kMeasured) continue;
    ++summary.measured;
    trips.push_back(pair.figures.p50_us);
    summary.slowest.push_back(i);
    for (const LinkRate& rate : pair.figures.rates)
      for (const double value : {rate.there, rate.back})
        if (value > 0) rates[rate.bytes].push_back(value);
  }
  summary.median_p50_us = median(trips);
  for (const auto& [bytes, values] : rates) summary.sizes.push_back({bytes, median(values)});
  std::stable_sort(summary.slowest.begin(), summary.slowest.end(), [&](auto a, auto b) {
    return least_rate(run.pairs[a]) < least_rate(run.pairs[b]);
  });
  summary.outliers.resize(run.pairs.size());
  if (summary.measured >= kMeasuredMin)
    for (std::size_t i = 0; i < run.pairs.size(); ++i)
      summary.outliers[i] = outliers_of(run.pairs[i], summary);
  return summary;
}

}  // namespace troupe::bench
