#include "tools/troupe/bench/network_report.h"

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <map>
#include <nlohmann/json.hpp>

namespace troupe::bench {
namespace {

using Json = nlohmann::ordered_json;
using Nodes = std::map<NodeId, NetworkNode>;

constexpr std::size_t kSlowestShown = 3;

Nodes nodes_of(const NetworkRun& run) {
  Nodes nodes;
  for (const NetworkNode& node : run.plan.nodes) nodes[node.id] = node;
  return nodes;
}

const NetworkNode& node_of(const Nodes& nodes, NodeId id) {
  static const NetworkNode kUnknown{};
  const auto it = nodes.find(id);
  return it == nodes.end() ? kUnknown : it->second;
}

const char* name_of(PairState state) {
  switch (state) {
    case PairState::kMeasured:
      return "measured";
    case PairState::kNoLink:
      return "no_link";
    case PairState::kFailed:
      break;
  }
  return "failed";
}

std::string pair_name(const PairReport& pair) {
  return to_string(pair.lower) + " - " + to_string(pair.higher);
}

// --- JSON ---------------------------------------------------------------------------------------

Json known(std::int32_t value) { return value < 0 ? Json() : Json(value); }
Json known(double value) { return value <= 0 ? Json() : Json(value); }

Json known(const std::string& text) { return text.empty() ? Json() : Json(text); }
Json known(std::uint64_t number) { return number == 0 ? Json() : Json(number); }

Json adapter_json(const FabricAdapter& adapter) {
  if (adapter == FabricAdapter{}) return nullptr;
  return {{"name", known(adapter.name)},
          {"pci_address", known(adapter.pci_address)},
          {"vendor_id", known(adapter.vendor_id)},
          {"device_id", known(adapter.device_id)},
          {"driver", known(adapter.driver)},
          {"firmware", known(adapter.firmware)},
          {"network", known(adapter.network)},
          {"state", known(adapter.state)},
          {"bits_per_s", known(adapter.bits_per_s)},
          {"mtu", known(std::uint64_t{adapter.mtu})}};
}

Json node_json(const NetworkNode& node) {
  const FabricPort& port = node.port;
  return {{"id", to_string(node.id)},
          {"host", node.host},
          {"address", node.address},
          {"provider", port.provider},
          {"provider_why", port.provider_why},
          {"providers", port.providers},
          {"interface", port.interface},
          {"interface_why", port.interface_why},
          {"interfaces", port.interfaces},
          {"numa_node", known(port.numa_node)},
          {"speed_mbit", known(port.speed_mbit)},
          {"adapter", adapter_json(port.adapter)}};
}

Json pair_json(const PairReport& pair, const std::vector<std::string>& outliers,
               const Nodes& nodes) {
  const NetworkNode& a = node_of(nodes, pair.lower);
  const NetworkNode& b = node_of(nodes, pair.higher);
  const LinkChoice choice = link_choice(a, b);
  Json rates = Json::array();
  for (const LinkRate& rate : pair.figures.rates)
    rates.push_back({{"bytes", rate.bytes},
                     {"there_bytes_per_s", known(rate.there)},
                     {"back_bytes_per_s", known(rate.back)}});
  const bool measured = state_of(pair) == PairState::kMeasured;
  return {{"nodes", {to_string(pair.lower), to_string(pair.higher)}},
          {"state", name_of(state_of(pair))},
          {"provider", choice.provider},
          {"candidates", choice.candidates},
          {"chosen", choice.text},
          {"interfaces", {a.port.interface, b.port.interface}},
          {"numa_nodes", {known(a.port.numa_node), known(b.port.numa_node)}},
          {"adapters", {known(a.port.adapter.name), known(b.port.adapter.name)}},
          {"link_bits_per_s", known(link_bits_per_s(a, b))},
          {"link_share", known(link_share(pair, a, b))},
          {"round_trips", pair.figures.round_trips},
          {"round_trip_us",
           measured ? Json{{"p50", pair.figures.p50_us}, {"p99", pair.figures.p99_us}} : Json()},
          {"rates", rates},
          {"requests_meanwhile", pair.running},
          {"outliers", outliers},
          {"error", pair.error ? Json(pair.error->message) : Json()}};
}

// --- For people ---------------------------------------------------------------------------------

/// What other machines say must not steer the terminal.
std::string plain(std::string text) {
  for (char& c : text)
    if (static_cast<unsigned char>(c) < ' ' || c == 0x7f) c = '?';
  return text;
}

__attribute__((format(printf, 1, 2))) std::string format(const char* text, ...) {
  char line[1024];
  va_list args;
  va_start(args, text);
  std::vsnprintf(line, sizeof line, text, args);
  va_end(args);
  return line;
}

std::string size_name(std::uint32_t bytes) {
  if (bytes % (1u << 20) == 0) return std::to_string(bytes >> 20) + " MiB";
  if (bytes % (1u << 10) == 0) return std::to_string(bytes >> 10) + " KiB";
  return std::to_string(bytes) + " B";
}

std::string gigabytes(double rate) { return rate > 0 ? format("%.3g", rate * 1e-9) : "-"; }
std::string number(std::int32_t value) { return value < 0 ? "-" : std::to_string(value); }
std::string or_dash(const std::string& text) { return text.empty() ? "-" : plain(text); }

/// "mlx5_0 400G"; the driver stands for one without a name.
std::string adapter_text(const FabricPort& port) {
  const FabricAdapter& adapter = port.adapter;
  const double bits = static_cast<double>(port_bits_per_s(port));
  std::string text = adapter.name.empty() ? adapter.driver : adapter.name;
  if (bits > 0)
    text += (text.empty() ? "" : " ") +
            (bits < 1e9 ? format("%.3gM", bits * 1e-6) : format("%.3gG", bits * 1e-9));
  return or_dash(text);
}

std::string nodes_text(const NetworkRun& run) {
  std::string text = format("%-10s %-16s %-28s %-12s %4s  %-16s  %s\n", "node", "host", "bulk lane",
                            "interface", "NUMA", "adapter", "its machine has");
  for (const NetworkNode& node : run.plan.nodes) {
    std::string has;
    for (const auto& name : node.port.interfaces) has += (has.empty() ? "" : ", ") + plain(name);
    text += format("%-10s %-16s %-28s %-12s %4s  %-16s  %s\n", to_string(node.id).c_str(),
                   plain(node.host).c_str(), plain(node.address).c_str(),
                   or_dash(node.port.interface).c_str(), number(node.port.numa_node).c_str(),
                   adapter_text(node.port).c_str(), or_dash(has).c_str());
  }
  return text;
}

std::string pair_row(const PairReport& pair, bool outlier, const NetworkSummary& summary,
                     double share) {
  std::string row = format("%-20s %c %8.1f %8.1f", pair_name(pair).c_str(), outlier ? '!' : ' ',
                           double(pair.figures.p50_us), double(pair.figures.p99_us));
  for (const SizeSummary& size : summary.sizes) {
    std::string cell = "-";
    for (const LinkRate& rate : pair.figures.rates)
      if (rate.bytes == size.bytes) cell = gigabytes(rate.there) + " / " + gigabytes(rate.back);
    row += format("  %15s", cell.c_str());
  }
  return row + format("  %5s", share > 0 ? format("%.0f%%", 100 * share).c_str() : "-");
}

std::string pairs_text(const NetworkRun& run, const NetworkSummary& summary, const Nodes& nodes) {
  std::string text = format("\n%-20s   %17s", "", "us round trip");
  for (std::size_t i = 0; i < summary.sizes.size(); ++i)
    text += format("  %15s", "GB/s there/back");
  text += format("  %5s", "");
  text += format("\n%-20s   %8s %8s", "pair", "p50", "p99");
  for (const SizeSummary& size : summary.sizes)
    text += format("  %15s", size_name(size.bytes).c_str());
  text += format("  %5s  what was chosen\n", "link");
  for (std::size_t i = 0; i < run.pairs.size(); ++i) {
    const PairReport& pair = run.pairs[i];
    const auto& outliers = summary.outliers[i];
    const NetworkNode& a = node_of(nodes, pair.lower);
    const NetworkNode& b = node_of(nodes, pair.higher);
    if (state_of(pair) == PairState::kMeasured)
      text += pair_row(pair, !outliers.empty(), summary, link_share(pair, a, b)) + "  " +
              plain(link_choice(a, b).text) + "\n";
    else
      text += format("%-20s   ", pair_name(pair).c_str()) +
              (state_of(pair) == PairState::kFailed ? "failed: " : "") +
              plain(pair.error->message) + "\n";
    for (const std::string& one : outliers) text += format("%-20s ! ", "") + one + "\n";
  }
  return text;
}

std::string counted_pairs(std::size_t count) {
  return std::to_string(count) + (count == 1 ? " pair" : " pairs");
}

std::string summary_text(const NetworkRun& run, const NetworkSummary& summary) {
  std::string text = "\n" + std::to_string(summary.measured) + " of " +
                     counted_pairs(run.plan.pairs) + " measured in " +
                     format("%.1f s", run.duration_s);
  if (summary.no_link > 0) text += ", " + std::to_string(summary.no_link) + " without a link";
  if (summary.failed > 0) text += ", " + std::to_string(summary.failed) + " failed";
  if (run.plan.left_out > 0)
    text += "; " + counted_pairs(run.plan.left_out) + " beyond the limit left out (--pairs)";
  text += ".\n";
  if (summary.measured > 0) {
    text += format("Medians: round trip %.1f us", summary.median_p50_us);
    for (const SizeSummary& size : summary.sizes)
      text += ", " + gigabytes(size.median) + " GB/s with " + size_name(size.bytes);
    text += ".\n";
  }
  if (summary.measured > 1) {
    text += "Slowest: ";
    const std::size_t shown = std::min(kSlowestShown, summary.slowest.size());
    for (std::size_t i = 0; i < shown; ++i) {
      const PairReport& pair = run.pairs[summary.slowest[i]];
      text += (i == 0 ? "" : ", ") + pair_name(pair) + " " + gigabytes(least_rate(pair)) + " GB/s";
    }
    text += ".\n";
  }
  std::uint32_t served = 0;
  for (const PairReport& pair : run.pairs) served = std::max(served, pair.running);
  if (served > 0)
    text += "Up to " + std::to_string(served) +
            " requests were served meanwhile and shared the links: the figures are what was left "
            "of these.\n";
  if (!run.complete) text += "It was not finished.\n";
  return text;
}

}  // namespace

std::string network_json(const NetworkRun& run) {
  const NetworkSummary summary = summarize(run);
  const Nodes nodes = nodes_of(run);
  Json json;
  json["complete"] = run.complete;
  json["duration_s"] = run.duration_s;
  json["nodes"] = Json::array();
  for (const NetworkNode& node : run.plan.nodes) json["nodes"].push_back(node_json(node));
  json["pairs"] = Json::array();
  for (std::size_t i = 0; i < run.pairs.size(); ++i)
    json["pairs"].push_back(pair_json(run.pairs[i], summary.outliers[i], nodes));
  Json sizes = Json::array(), slowest = Json::array();
  for (const SizeSummary& size : summary.sizes)
    sizes.push_back({{"bytes", size.bytes}, {"bytes_per_s", size.median}});
  for (std::size_t i = 0; i < std::min(kSlowestShown, summary.slowest.size()); ++i) {
    const PairReport& pair = run.pairs[summary.slowest[i]];
    slowest.push_back({{"nodes", {to_string(pair.lower), to_string(pair.higher)}},
                       {"bytes_per_s", known(least_rate(pair))}});
  }
  json["summary"] = {{"pairs", run.plan.pairs},
                     {"rounds", run.plan.rounds},
                     {"measured", summary.measured},
                     {"no_link", summary.no_link},
                     {"failed", summary.failed},
                     {"left_out", run.plan.left_out},
                     {"outliers", std::count_if(summary.outliers.begin(), summary.outliers.end(),
                                                [](const auto& list) { return !list.empty(); })},
                     {"median_round_trip_us", known(summary.median_p50_us)},
                     {"median_rates", sizes},
                     {"slowest", slowest}};
  // What other machines call themselves may be no UTF-8.
  return json.dump(2, ' ', false, Json::error_handler_t::replace);
}

std::string network_text(const NetworkRun& run) {
  const NetworkSummary summary = summarize(run);
  return nodes_text(run) + pairs_text(run, summary, nodes_of(run)) + summary_text(run, summary);
}

}  // namespace troupe::bench
