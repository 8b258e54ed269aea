#include "tools/troupe/plan/speed_report.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "tools/troupe/plan/rates.h"

namespace troupe {
namespace {

using Json = nlohmann::ordered_json;

template <class... Values>
std::string formatted(const char* format, Values... values) {
  char text[320];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

/// Tokens a second: "12,345", "61.8".
std::string rate(double value) {
  if (value < 99.95 && value != std::floor(value)) return formatted("%.1f", value);
  std::string digits = formatted("%.0f", value);
  for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
    digits.insert(static_cast<std::size_t>(at), ",");
  return digits;
}

std::string seconds_text(double s) {
  if (s < 1) return formatted("%.3g ms", s * 1e3);
  if (s < 120) return formatted("%.3g s", s);
  if (s < 7200) return formatted("%.0f minutes", s / 60);
  return rate(s < 172800 ? std::round(s / 3600) : std::round(s / 86400)) +
         (s < 172800 ? " hours" : " days");
}

std::string words_of(Limit limit) {
  switch (limit) {
    case Limit::kMemory:
      return "memory";
    case Limit::kCompute:
      return "arithmetic";
    case Limit::kWire:
      return "wires";
    case Limit::kOverhead:
      return "ops and messages themselves";
  }
  return {};
}

double sent(const WireBytes& wire) { return wire.network_out + wire.link_out; }

std::string devices_text(const FitQuestion& q, const SpeedQuestion& speed) {
  std::string text;
  for (std::size_t g = 0; g < q.nodes.size(); ++g) {
    const DeviceSpeed& m = speed.groups[g].device_speed;
    const double compute = best_rate(m, {kernels::Codes::kFp8, false});
    text += "  " + to_string(std::vector<NodeGroup>{q.nodes[g]}) + ": " +
            decimal(m.ceilings.memory) + "B/s of memory, " + decimal(compute) + "FLOP/s";
    if (!q.nodes[g].device.empty())
      text += m.arithmetic == Arithmetic::kFma                         ? " without tensor cores"
              : m.arithmetic == Arithmetic::kFp8 && m.ceilings.fp8 > 0 ? " of FP8 products"
                                                                       : " of bf16 products";
    if (m.ceilings.network > 0) text += ", network " + decimal(m.ceilings.network) + "B/s";
    if (m.ceilings.link > 0) text += ", within a node " + decimal(m.ceilings.link) + "B/s";
    text += " (" + speed.groups[g].source + ")";
    if (m.products.empty())
      text +=
          formatted("; expected: %.0f %% of memory, %.0f %% of arithmetic, %.0f %% of wires",
                    100 * m.efficiency.memory, 100 * m.efficiency.compute, 100 * m.efficiency.wire);
    text += "\n";
  }
  return text;
}

std::string decode_text(const SpeedAnswer& answer) {
  std::string text =
      "  sequences   each step, the busiest device    tokens/s, all replicas  tokens/s of\n"
      "  a replica     reads    of it KV      sends     at most    expected   a sequence  limit\n";
  for (const StepSpeed& s : answer.decode) {
    const DeviceLoad& d = s.round.busiest;
    const std::string wire = sent(d.wire) > 0 ? decimal(sent(d.wire)) + "B" : "-";
    text +=
        formatted("  %9lld %8sB %10sB %10s %11s %11s %12s  %s\n", static_cast<long long>(s.rows),
                  decimal(d.weight_bytes + d.kv_bytes).c_str(), decimal(d.kv_bytes).c_str(),
                  wire.c_str(), rate(s.tokens_per_s_max()).c_str(), rate(s.tokens_per_s()).c_str(),
                  rate(1 / s.round.seconds()).c_str(), words_of(s.limit).c_str());
  }
  return text +
         "  At most: what its limit alone allows. Expected: what is likely, all that a step does "
         "added "
         "up.\n";
}

std::string notes(const FitQuestion& q, const SpeedAnswer& answer) {
  std::string text;
  if (answer.cache_limits)
    text += "The KV cache holds " + std::to_string(answer.sequences_max) +
            " such sequences a replica.\n";
  if (q.spec.num_experts() > 0 && answer.skew > 1.005)
    text += formatted(
        "Experts: the busiest of a layer is chosen %.2f times as often as the mean; "
        "laid out by load, the busiest device has %.2f times the mean.\n",
        answer.skew, answer.imbalance);
  if (answer.lacks_network)
    text += "What goes between nodes is not counted: say how fast with --network.\n";
  return text;
}

std::string changes_text(const SpeedAnswer& answer) {
  if (answer.changes.empty()) return {};
  std::string text =
      "What would help " + std::to_string(answer.decode.back().rows) + " sequences a replica:\n";
  for (const SpeedChange& change : answer.changes)
    text += "  " + change.what + ": " + rate(change.tokens_per_s) + " tokens/s\n";
  return text;
}

Json wire_json(const WireBytes& wire) {
  return {{"network_out", wire.network_out},
          {"network_in", wire.network_in},
          {"link_out", wire.link_out},
          {"link_in", wire.link_in}};
}

Json step_json(const StepSpeed& s) {
  const Round& r = s.round;
  return {{"rows", s.rows},
          {"tokens", s.tokens},
          {"busiest_device",
           {{"weight_bytes", r.busiest.weight_bytes},
            {"kv_bytes", r.busiest.kv_bytes},
            {"operations", r.busiest.operations},
            {"wire_bytes", wire_json(r.busiest.wire)}}},
          {"expert_copies_read", r.hits},
          {"least",
           {{"memory_s", r.bound.memory_s},
            {"compute_s", r.bound.compute_s},
            {"wire_s", r.bound.wire_s},
            {"tokens_per_s", s.tokens_per_s_max()}}},
          {"expected",
           {{"seconds", r.seconds()},
            {"overhead_s", r.overhead_s},
            {"tokens_per_s", s.tokens_per_s()}}},
          {"limit", to_string(s.limit)}};
}

/// What 1,000 tokens of a replica's prompts ask of the busiest device.
Json thousand_json(const StepSpeed& s, std::int64_t stages) {
  const double times = 1000.0 / static_cast<double>(s.rows * stages);
  WireBytes wire;
  wire.add(s.round.busiest.wire, times);
  return {{"weight_bytes", s.round.busiest.weight_bytes * times},
          {"kv_bytes", s.round.busiest.kv_bytes * times},
          {"operations", s.round.busiest.operations * times},
          {"wire_bytes", wire_json(wire)}};
}

Json devices_json(const FitQuestion& q, const SpeedQuestion& speed) {
  Json json = Json::array();
  for (std::size_t g = 0; g < q.nodes.size(); ++g) {
    const DeviceSpeed& m = speed.groups[g].device_speed;
    json.push_back(
        {{"nodes", to_string(std::vector<NodeGroup>{q.nodes[g]})},
         {"source", speed.groups[g].source},
         {"products", to_string(m.arithmetic)},
         {"memory_bandwidth", m.ceilings.memory},
         {"compute", {{"fma", m.ceilings.fma}, {"bf16", m.ceilings.bf16}, {"fp8", m.ceilings.fp8}}},
         {"network", m.ceilings.network},
         {"link", m.ceilings.link},
         {"efficiency",
          {{"memory", m.efficiency.memory},
           {"compute", m.efficiency.compute},
           {"wire", m.efficiency.wire},
           {"call_s", m.efficiency.call_s},
           {"matrix_s", m.efficiency.matrix_s},
           {"hop_s", m.efficiency.hop_s}}}});
  }
  return json;
}

}  // namespace

std::string speed_text(const FitQuestion& q, const SpeedQuestion& speed,
                       const SpeedAnswer& answer) {
  if (!answer.missing.empty()) return answer.missing + "\n";
  std::string text = "Speed with " + rate(static_cast<double>(answer.context)) +
                     " tokens of context:\n" + decode_text(answer);
  const StepSpeed& p = answer.prefill;
  text += "Prompts: at most " + rate(p.tokens_per_s_max()) + " tokens/s, expected " +
          rate(p.tokens_per_s()) + ", limit: " + words_of(p.limit) + "; one of " +
          rate(static_cast<double>(answer.context)) + " tokens has its first token after " +
          seconds_text(answer.prompt_s) + ".\n";
  return text + notes(q, answer) + changes_text(answer) + "Counted with, each device:\n" +
         devices_text(q, speed);
}

Json speed_json(const FitQuestion& q, const SpeedQuestion& speed, const SpeedAnswer& answer) {
  Json json = {{"devices", devices_json(q, speed)}};
  if (!answer.missing.empty()) {
    json["missing"] = answer.missing;
    return json;
  }
  json["context"] = answer.context;
  json["sequences_max"] = answer.sequences_max;
  json["expert_skew"] = answer.skew;
  json["device_imbalance"] = answer.imbalance;
  json["network_known"] = !answer.lacks_network;
  json["decode"] = Json::array();
  for (const StepSpeed& s : answer.decode) json["decode"].push_back(step_json(s));
  json["prefill"] = step_json(answer.prefill);
  json["prefill"]["per_1000_tokens"] =
      thousand_json(answer.prefill, q.engine.pipeline_parallel_size);
  json["prefill"]["prompt_s"] = answer.prompt_s;
  json["changes"] = Json::array();
  for (const SpeedChange& c : answer.changes)
    json["changes"].push_back({{"what", c.what}, {"tokens_per_s", c.tokens_per_s}});
  return json;
}

}  // namespace troupe
