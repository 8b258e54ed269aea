#include "actors/gateway/thinking_fields.h"

#include <string>

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kEffort = "reasoning_effort";

/// true, false, or an object with a type, as some servers have it.
std::optional<bool> read_switch(FieldReader& fields, const char* name) {
  const json* value = fields.find(name);
  if (value == nullptr) return std::nullopt;
  if (value->is_boolean()) return value->get<bool>();
  const json type = value->is_object() ? value->value("type", json()) : json();
  if (type == "enabled" || type == "disabled") return type == "enabled";
  fields.fail(name, std::string(name) + " must be true or false.");
  return std::nullopt;
}

/// What vLLM makes of it: templates tell the model the effort, or ask whether there is to be any.
std::optional<bool> read_effort(FieldReader& fields, json& kwargs) {
  const json* effort = fields.find(kEffort);
  if (effort == nullptr) return std::nullopt;
  if (*effort == "none") return false;
  for (const char* known : {"minimal", "low", "medium", "high", "xhigh", "max"}) {
    if (*effort != known) continue;
    kwargs[kEffort] = *effort;
    // It goes to the template of any model; only of some it turns thinking on.
    kwargs.update({{"enable_thinking", true}, {"thinking", true}});
    return std::nullopt;
  }
  fields.fail(kEffort, "reasoning_effort must be none, minimal, low, medium, high, xhigh or max.");
  return std::nullopt;
}

/// The template may tell the model how much to say.
void read_verbosity(FieldReader& fields, json& kwargs) {
  constexpr const char* kName = "verbosity";
  const json* verbosity = fields.find(kName);
  if (verbosity == nullptr) return;
  for (const char* known : {"low", "medium", "high"})
    if (*verbosity == known) kwargs[kName] = known;
  if (!kwargs.contains(kName)) fields.fail(kName, "verbosity must be low, medium or high.");
}

}  // namespace

void read_thinking(FieldReader& fields, const ModelFacts& model, ApiRequest& out) {
  constexpr const char* kName = "chat_template_kwargs";
  json all = json::object();
  const auto set = [&](const char* name, std::optional<bool> thinks) {
    if (!thinks) return;
    if (*thinks && !model.reasoning)
      return fields.fail(name, std::string(name) +
                                   " cannot be turned on: this model's chat "
                                   "template knows no thoughts.");
    if (!model.reasoning) return;
    out.thinking = {name, *thinks};
    // Templates ask for either.
    all.update({{"enable_thinking", *thinks}, {"thinking", *thinks}});
  };
  set(kEffort, read_effort(fields, all));
  set("thinking", read_switch(fields, "thinking"));
  set("enable_thinking", read_switch(fields, "enable_thinking"));
  fields.boolean("include_reasoning", out.include_reasoning);
  read_verbosity(fields, all);
  if (const json* kwargs = fields.find(kName); kwargs != nullptr) {
    if (!kwargs->is_object()) return fields.fail(kName, "chat_template_kwargs must be an object.");
    all.update(*kwargs);
  }
  if (!all.empty()) out.prompts.front().chat_template_kwargs = all.dump();
}

std::optional<ApiError> check_thinking(const GatewayModel& model, const ApiRequest& request) {
  const auto& [name, thinks] = request.thinking;
  if (name.empty()) return std::nullopt;
  const auto follows = [thinks](const ReasoningStart& start) {
    const bool harmony = start.style == ReasoningStyle::kHarmony;
    return thinks ? !start.over : !start.inside && !harmony;
  };
  if (follows(request.start)) return std::nullopt;
  // What a message says of thinking, or what an answer goes on with, may count more.
  GenerationRequest plain;
  plain.prompt = std::vector<ChatMessage>{{"user", "x"}};
  plain.chat_template_kwargs = request.prompts.front().chat_template_kwargs;
  if (follows(model.reasoning(plain))) return std::nullopt;
  return bad_field(name, name +
                             " has no effect: this model's chat template always turns thinking " +
                             (thinks ? "off." : "on."));
}

}  // namespace troupe
