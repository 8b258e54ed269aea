#include <cmath>
#include <cstdio>
#include <iostream>
#include <limits>
#include <nlohmann/json.hpp>
#include <string>

#include "model/json_reader.h"
#include "model/placement/eplb.h"
#include "tools/troupe/cli.h"

namespace troupe::cli {
namespace {

using nlohmann::json;

/// kEplbEntriesMax weights of seven digits.
constexpr std::size_t kPlanInputBytesMax = 32u << 20;

Result<std::string> read_input() {
  std::string text;
  char buffer[64 << 10];
  while (std::cin.read(buffer, sizeof buffer) || std::cin.gcount() > 0) {
    text.append(buffer, static_cast<std::size_t>(std::cin.gcount()));
    if (text.size() > kPlanInputBytesMax) {
      return invalid_argument("The input has more than " + std::to_string(kPlanInputBytesMax) +
                              " bytes, too many for one plan.");
    }
  }
  return text;
}

/// Rounded once, as float32 tensors are made of whole numbers and of others.
float to_float(const json& number) {
  if (number.is_number_unsigned()) return static_cast<float>(number.get<std::uint64_t>());
  if (number.is_number_integer()) return static_cast<float>(number.get<std::int64_t>());
  const double value = number.get<double>();
  if (std::abs(value) > static_cast<double>(std::numeric_limits<float>::max()))
    return std::numeric_limits<float>::infinity();
  return static_cast<float>(value);
}

Result<std::vector<std::vector<float>>> read_weight(const json* rows) {
  const auto wrong = [] {
    return invalid_argument(
        "weight must be a list of layers, each a list of the loads of its experts.");
  };
  if (!rows || !rows->is_array()) return wrong();
  std::vector<std::vector<float>> weight;
  for (const json& row : *rows) {
    if (!row.is_array()) return wrong();
    weight.emplace_back();
    for (const json& value : row) {
      if (!value.is_number()) return wrong();
      weight.back().push_back(to_float(value));
    }
  }
  return weight;
}

Result<EplbInput> parse_input(const std::string& text) {
  const auto parsed = parse_json(text, "The input");
  if (!parsed.ok()) return parsed.error();
  JsonReader reader(*parsed, "The input");
  if (!reader.ok()) return reader.status().error();
  EplbInput input;
  auto weight = read_weight(reader.find("weight"));
  if (!weight.ok()) return weight.error();
  input.weight = std::move(*weight);
  input.num_replicas = reader.integer("num_replicas", 1, kEplbEntriesMax);
  input.num_groups = reader.integer("num_groups", 1, kEplbEntriesMax);
  input.num_nodes = reader.integer("num_nodes", 1, kEplbEntriesMax);
  input.num_gpus = reader.integer("num_gpus", 1, kEplbEntriesMax);
  if (!reader.ok()) return reader.status().error();
  return input;
}

int run_eplb() {
  std::ios::sync_with_stdio(false);
  const auto text = read_input();
  if (!text.ok()) return fail(text.error());
  const auto input = parse_input(*text);
  if (!input.ok()) return fail(input.error());
  const auto plan = rebalance_experts(*input);
  if (!plan.ok()) return fail(plan.error());
  const nlohmann::ordered_json answer = {
      {"phy2log", plan->phy2log}, {"log2phy", plan->log2phy}, {"logcnt", plan->logcnt}};
  std::cout << answer.dump() << '\n';
  std::cout.flush();
  if (!std::cout) return fail(unavailable("The plan could not be written to the standard output."));
  return kDone;
}

}  // namespace

void add_plan(Cli& cli) {
  CLI::App* plan = cli.app.add_subcommand("plan", "Placements worked out from numbers alone");
  plan->require_subcommand(1);
  plan->footer("Examples:\n  troupe plan eplb < loads.json\n  troupe plan eplb --help");
  CLI::App* eplb = plan->add_subcommand(
      "eplb",
      "DeepSeek's expert load balancer. Reads {\"weight\", \"num_replicas\", \"num_groups\", "
      "\"num_nodes\", \"num_gpus\"} as JSON from the standard input and prints {\"phy2log\", "
      "\"log2phy\", \"logcnt\"}, equal to the published code's answer");
  set_up_command(cli, eplb,
                 "  troupe plan eplb < loads.json\n"
                 "  echo '{\"weight\": [[90, 132, 40, 61]], \"num_replicas\": 6, \"num_groups\": 2,"
                 " \"num_nodes\": 1, \"num_gpus\": 2}' | troupe plan eplb",
                 {run_eplb});
}

}  // namespace troupe::cli
