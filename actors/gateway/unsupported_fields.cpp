#include "actors/gateway/unsupported_fields.h"

#include <array>
#include <span>

namespace troupe {
namespace {

using nlohmann::json;

/// A field, and the values that ask for nothing.
struct Unsupported {
  const char* name;
  bool (*asks_nothing)(const json&);
};

bool never(const json&) { return false; }
bool is_false(const json& v) { return v == false; }
bool is_true(const json& v) { return v == true; }
bool is_zero(const json& v) { return v.is_number() && v == 0; }
bool is_one(const json& v) { return v.is_number() && v == 1; }
bool is_empty(const json& v) { return !v.is_number() && !v.is_boolean() && v.empty(); }
bool is_empty_text(const json& v) { return v == ""; }
bool is_medium(const json& v) { return v == "medium"; }
bool is_text_format(const json& v) { return v.is_object() && v.value("type", json()) == "text"; }
bool is_text_only(const json& v) { return v == json::array({"text"}); }

constexpr std::array kAnywhere{
    Unsupported{"logit_bias", is_empty},
    Unsupported{"response_format", is_text_format},
    Unsupported{"structured_outputs", never},
    Unsupported{"structural_tag", never},
    Unsupported{"guided_json", never},
    Unsupported{"guided_regex", never},
    Unsupported{"guided_choice", never},
    Unsupported{"guided_grammar", never},
    Unsupported{"min_tokens", is_zero},
    Unsupported{"stop_token_ids", is_empty},
    Unsupported{"bad_words", is_empty},
    Unsupported{"allowed_token_ids", is_empty},
    Unsupported{"logits_processors", is_empty},
    Unsupported{"logprob_token_ids", is_empty},
    Unsupported{"use_beam_search", is_false},
    Unsupported{"length_penalty", is_one},
    Unsupported{"early_stopping", is_false},
    Unsupported{"repetition_detection", never},
    Unsupported{"include_stop_str_in_output", is_false},
    Unsupported{"skip_special_tokens", is_true},
    Unsupported{"truncate_prompt_tokens", never},
    Unsupported{"prompt_logprobs", never},
    Unsupported{"prompt_embeds", is_empty},
    Unsupported{"prefix", is_false},
    Unsupported{"kv_transfer_params", is_empty},
    Unsupported{"vllm_xargs", is_empty},
};

constexpr std::array kCompletion{
    Unsupported{"suffix", is_empty_text},
    Unsupported{"max_completion_tokens", never},
    Unsupported{"top_logprobs", is_zero},
};

constexpr std::array kChat{
    Unsupported{"functions", is_empty},
    Unsupported{"function_call", never},
    Unsupported{"echo", is_false},
    Unsupported{"add_generation_prompt", is_true},
    Unsupported{"continue_final_message", is_false},
    Unsupported{"add_special_tokens", is_false},
    Unsupported{"chat_template", never},
    Unsupported{"documents", is_empty},
    Unsupported{"modalities", is_text_only},
    Unsupported{"audio", never},
    Unsupported{"mm_processor_kwargs", is_empty},
    Unsupported{"media_io_kwargs", is_empty},
    Unsupported{"web_search_options", never},
    Unsupported{"verbosity", is_medium},
    Unsupported{"reasoning", never},
    Unsupported{"thinking_budget", never},
    Unsupported{"thinking_token_budget", never},
};

constexpr std::array kMessage{
    Unsupported{"prefix", is_false},        Unsupported{"tool_calls", is_empty},
    Unsupported{"function_call", is_empty}, Unsupported{"audio", is_empty},
    Unsupported{"refusal", is_empty},
};

void refuse(FieldReader& fields, const char* name, bool asks_nothing) {
  if (!asks_nothing)
    fields.fail(name, std::string(name) + " is not supported with this value; leave it out.");
}

void refuse(FieldReader& fields, std::span<const Unsupported> unsupported) {
  for (const Unsupported& field : unsupported)
    if (const json* value = fields.find(field.name); value != nullptr)
      refuse(fields, field.name, field.asks_nothing(*value));
}

/// Whether an answer thinks, and shows it apart, is the model's way: it cannot be asked for here.
/// How much a chat's answer thinks is a matter of its template, though.
void refuse_thinking(FieldReader& fields, bool thinks, bool chat) {
  if (const json* value = fields.find("thinking"); value != nullptr) {
    const json type = value->is_object() ? value->value("type", json()) : json();
    refuse(fields, "thinking", type == (thinks ? "enabled" : "disabled"));
  }
  if (const json* value = fields.find("enable_thinking"); value != nullptr)
    refuse(fields, "enable_thinking", *value == thinks);
  if (const json* value = fields.find("include_reasoning"); value != nullptr)
    refuse(fields, "include_reasoning", *value == true || (*value == false && !thinks));
  if (const json* value = fields.find("reasoning_effort"); value != nullptr)
    refuse(fields, "reasoning_effort", *value == "none" ? !thinks : chat);
}

void refuse_tools(FieldReader& fields) {
  const json* choice = fields.find("tool_choice");
  const json* tools = fields.find("tools");
  const bool none = choice != nullptr && *choice == "none";
  if (none) return;
  if (tools != nullptr && !is_empty(*tools)) {
    fields.fail("tools", "tools is not supported; leave it out or set tool_choice to \"none\".");
  }
  if (choice != nullptr && *choice != "auto") {
    fields.fail("tool_choice", "tool_choice is not supported other than as \"none\".");
  }
}

}  // namespace

void refuse_unsupported(FieldReader& fields, const ModelFacts& model, bool chat) {
  if (chat) {
    refuse_tools(fields);
    refuse(fields, kChat);
  } else {
    refuse(fields, kCompletion);
  }
  refuse_thinking(fields, chat && model.reasoning, chat);
  refuse(fields, kAnywhere);
}

void refuse_unsupported_in_message(FieldReader& fields, const std::string& where,
                                   const json& message) {
  FieldReader inner(message);
  refuse(inner, kMessage);
  if (inner.failed()) fields.fail("messages", where + "." + inner.error()->message);
}

}  // namespace troupe
