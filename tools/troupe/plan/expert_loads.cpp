#include "tools/troupe/plan/expert_loads.h"

#include <nlohmann/json.hpp>

#include "model/json_reader.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::int64_t kLayersMax = 4096;

Result<std::vector<double>> read_tokens(const json* tokens, const std::string& where) {
  const Error wrong = invalid_argument(where + ": tokens should be a list of counts.");
  if (!tokens || !tokens->is_array() || tokens->size() > limits::kExpertsMax) return wrong;
  std::vector<double> counts;
  for (const json& t : *tokens) {
    if (!t.is_number() || !(t.get<double>() >= 0)) return wrong;
    counts.push_back(t.get<double>());
  }
  return counts;
}

}  // namespace

Result<std::map<std::int32_t, std::vector<double>>> parse_expert_loads(const std::string& text,
                                                                       const std::string& where) {
  const auto status = parse_json(text, where);
  if (!status.ok()) return status.error();
  const Error none = invalid_argument(
      "--expert-loads: " + where +
      " says nothing of experts' loads; write into it what `troupe status --json` prints of a "
      "cluster that has computed something.");
  JsonReader reader(*status, where);
  const json* experts = reader.ok() ? reader.find("experts") : nullptr;
  const json* load =
      experts && experts->is_object() && experts->contains("load") ? &(*experts)["load"] : nullptr;
  if (!load || !load->is_array() || load->empty()) return none;
  std::map<std::int32_t, std::vector<double>> loads;
  for (const json& entry : *load) {
    JsonReader layer(entry, where + ", load");
    const std::int32_t number = layer.int32("layer", 0, kLayersMax);
    if (!layer.ok()) return layer.status().error();
    auto tokens = read_tokens(layer.find("tokens"), where);
    if (!tokens.ok()) return tokens.error();
    loads[number] = std::move(*tokens);
  }
  return loads;
}

}  // namespace troupe
