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
bool is_zero(const json& v) { return v.is_number() && v == 0; }
bool is_one(const json& v) { return v.is_number() && v == 1; }
bool is_empty(const json& v) { return !v.is_number() && !v.is_boolean() && v.empty(); }
bool is_empty_text(const json& v) { return v == ""; }
bool is_text_only(const json& v) { return v == json::array({"text"}); }

constexpr std::array kAnywhere{
    Unsupported{"structural_tag", never},
    Unsupported{"logits_processors", is_empty},
    Unsupported{"logprob_token_ids", is_empty},
    Unsupported{"use_beam_search", is_false},
    Unsupported{"length_penalty", is_one},
    Unsupported{"early_stopping", is_false},
    Unsupported{"repetition_detection", never},
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
    Unsupported{"echo", is_false},
    Unsupported{"add_special_tokens", is_false},
    Unsupported{"chat_template", never},
    Unsupported{"documents", is_empty},
    Unsupported{"modalities", is_text_only},
    Unsupported{"audio", never},
    Unsupported{"mm_processor_kwargs", is_empty},
    Unsupported{"media_io_kwargs", is_empty},
    Unsupported{"web_search_options", never},
    Unsupported{"reasoning", never},
    Unsupported{"thinking_budget", never},
    Unsupported{"thinking_token_budget", never},
};

constexpr std::array kMessage{
    Unsupported{"audio", is_empty},
};

/// Those of a Response, and what a chat calls otherwise.
constexpr std::array kResponse{
    Unsupported{"background", is_false},
    Unsupported{"conversation", never},
    Unsupported{"context_management", is_empty},
    Unsupported{"moderation", never},
    Unsupported{"prompt", never},
    Unsupported{"n", is_one},
    Unsupported{"logprobs", is_false},
    Unsupported{"messages", never},
    Unsupported{"max_tokens", never},
    Unsupported{"max_completion_tokens", never},
    Unsupported{"reasoning_effort", never},
    Unsupported{"response_format", never},
    Unsupported{"best_of", is_one},
    Unsupported{"prompt_logprobs", never},
    Unsupported{"continue_final_message", is_false},
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

/// A completion has no thoughts that could be told apart.
void refuse_thinking(FieldReader& fields) {
  if (const json* value = fields.find("thinking"); value != nullptr) {
    const json type = value->is_object() ? value->value("type", json()) : json();
    refuse(fields, "thinking", type == "disabled" || *value == false);
  }
  if (const json* value = fields.find("enable_thinking"); value != nullptr)
    refuse(fields, "enable_thinking", *value == false);
  if (const json* value = fields.find("include_reasoning"); value != nullptr)
    refuse(fields, "include_reasoning", value->is_boolean());
  if (const json* value = fields.find("reasoning_effort"); value != nullptr)
    refuse(fields, "reasoning_effort", *value == "none");
}

}  // namespace

void refuse_unsupported(FieldReader& fields, bool chat) {
  if (chat) {
    refuse(fields, kChat);
  } else {
    refuse(fields, kCompletion);
    refuse_thinking(fields);
  }
  refuse(fields, kAnywhere);
}

void refuse_unsupported_in_response(FieldReader& fields) {
  refuse(fields, kResponse);
  refuse(fields, kAnywhere);
}

void refuse_unsupported_in_message(FieldReader& fields, const std::string& where,
                                   const json& message) {
  FieldReader inner(message);
  refuse(inner, kMessage);
  if (inner.failed()) fields.fail("messages", where + "." + inner.error()->message);
}

}  // namespace troupe
