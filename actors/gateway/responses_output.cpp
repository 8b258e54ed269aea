#include "actors/gateway/responses_output.h"

#include <algorithm>
#include <utility>

#include "model/chat/json_extent.h"

namespace troupe {
namespace {

constexpr std::string_view kInProgress = "in_progress", kIncomplete = "incomplete";

void write_usage(JsonWriter& json, const ItemOutput::Usage& usage) {
  json.begin_object().member("input_tokens", usage.input);
  json.key("input_tokens_details").begin_object().member("cached_tokens", usage.cached);
  json.end_object().member("output_tokens", usage.output);
  json.key("output_tokens_details").begin_object().member("reasoning_tokens", usage.reasoning);
  json.end_object().member("total_tokens", usage.input + usage.output).end_object();
}

std::string_view response_status(const ItemOutput::State& state) {
  if (state.error != nullptr) return "failed";
  if (state.finish == FinishReason::kLength) return kIncomplete;
  if (state.finish == FinishReason::kStop) return "completed";
  return state.status == "queued" ? "queued" : kInProgress;
}

}  // namespace

// --- The object ---------------------------------------------------------------------------------

std::string ResponsesOutput::item_id(std::size_t index) const {
  const Kind kind = items()[index].kind;
  const char* const prefix = kind == Kind::kCall ? "fc" : kind == Kind::kMessage ? "msg" : "rs";
  return prefix + id().substr(std::min(id().find('_'), id().size())) + "_" + std::to_string(index);
}

/// The one part of a message, or of thoughts.
void ResponsesOutput::write_part(JsonWriter& json, const Item& item, std::string_view text) const {
  const bool reasoning = item.kind == Kind::kReasoning;
  json.begin_object().member("type", reasoning ? "reasoning_text" : "output_text");
  json.member("text", text);
  if (!reasoning) {
    json.key("annotations").begin_array().end_array();
    write_text_logprobs(json, names_, item.tokens, {.bytes = true});
  }
  json.end_object();
}

/// `whole`: as it is now; or else as it began.
void ResponsesOutput::write_item(JsonWriter& json, std::size_t index, bool whole) const {
  const Item& item = items()[index];
  const std::string_view text = whole ? std::string_view(item.text) : std::string_view();
  json.begin_object().member("id", item_id(index));
  if (item.kind == Kind::kCall) {
    json.member("type", "function_call").member("call_id", item.call_id);
    json.member("name", item.name).member("arguments", text);
  } else {
    const bool reasoning = item.kind == Kind::kReasoning;
    json.member("type", reasoning ? "reasoning" : "message");
    if (reasoning) {
      json.key("summary").begin_array().end_array();
    } else {
      json.member("role", "assistant");
    }
    json.key("content").begin_array();
    if (whole) write_part(json, item, text);
    json.end_array();
  }
  const std::string_view ended = item.cut_off ? kIncomplete : "completed";
  json.member("status", item.ended ? ended : kInProgress).end_object();
}

void ResponsesOutput::write(JsonWriter& json, const State& state) const {
  write_object(json, response_status(state), state);
}

void ResponsesOutput::write_object(JsonWriter& json, std::string_view status,
                                   const State& state) const {
  json.begin_object().member("id", id()).member("object", "response");
  json.member("created_at", created_unix_s()).member("status", status);
  json.key("error");
  if (state.error == nullptr) {
    json.null();
  } else {
    json.begin_object().member("code", "server_error");
    json.member("message", state.error->message).end_object();
  }
  json.key("incomplete_details");
  if (status == kIncomplete) {
    json.begin_object().member("reason", "max_output_tokens").end_object();
  } else {
    json.null();
  }
  json.member("model", model_).key("output").begin_array();
  for (std::size_t i = 0; i < items().size(); ++i) write_item(json, i, true);
  json.end_array().key("usage");
  if (state.error == nullptr && state.finish == FinishReason::kNone) {
    json.null();
  } else {
    write_usage(json, usage());
  }
  each_json_child(echo_, [&json](std::string_view name, std::string_view value) {
    json.key(name.substr(1, name.size() - 2)).raw(value);
  });
  json.end_object();
}

// --- Events -------------------------------------------------------------------------------------

JsonWriter ResponsesOutput::event(std::string_view type) {
  JsonWriter json;
  json.begin_object().member("type", type).member("sequence_number", sequence_++);
  return json;
}

/// What event() began.
void ResponsesOutput::tell_event(std::string_view type, JsonWriter json) {
  if (!after_ || sequence_ - 1 > *after_) add_event(type, std::move(json));
}

JsonWriter ResponsesOutput::last_item_event(std::string_view type) {
  JsonWriter json = event(type);
  json.member("item_id", item_id(items().size() - 1));
  json.member("output_index", items().size() - 1);
  if (items().back().kind != Kind::kCall) json.member("content_index", 0);
  return json;
}

void ResponsesOutput::tell_part(std::string_view type) {
  JsonWriter json = last_item_event(type);
  json.key("part");
  write_part(json, items().back(), items().back().text);
  tell_event(type, std::move(json));
}

void ResponsesOutput::tell_object(std::string_view status, std::string_view type,
                                  const State& state) {
  JsonWriter json = event(type);
  json.key("response");
  write_object(json, status, state);
  tell_event(type, std::move(json));
}

void ResponsesOutput::tell_start() {
  tell_object(kInProgress, "response.created", {});
  tell_object(kInProgress, "response.in_progress", {});
}

void ResponsesOutput::tell_item() {
  JsonWriter json = event("response.output_item.added");
  json.member("output_index", items().size() - 1).key("item");
  write_item(json, items().size() - 1, false);
  tell_event("response.output_item.added", std::move(json));
  if (items().back().kind != Kind::kCall) tell_part("response.content_part.added");
}

void ResponsesOutput::tell_more(std::string_view more) {
  const Kind kind = items().back().kind;
  const std::string_view type = kind == Kind::kCall      ? "response.function_call_arguments.delta"
                                : kind == Kind::kMessage ? "response.output_text.delta"
                                                         : "response.reasoning_text.delta";
  JsonWriter json = last_item_event(type);
  json.member("delta", more);
  const Item& item = items().back();
  if (kind == Kind::kMessage)
    write_text_logprobs(json, names_, item.tokens, {.first = item.told_tokens});
  tell_event(type, std::move(json));
}

void ResponsesOutput::tell_item_end() {
  const Item& item = items().back();
  const bool call = item.kind == Kind::kCall;
  const std::string_view done = call ? "response.function_call_arguments.done"
                                : item.kind == Kind::kMessage ? "response.output_text.done"
                                                              : "response.reasoning_text.done";
  JsonWriter json = last_item_event(done);
  json.member(call ? "arguments" : "text", item.text);
  if (call) json.member("name", item.name);
  if (item.kind == Kind::kMessage) write_text_logprobs(json, names_, item.tokens, {});
  tell_event(done, std::move(json));
  if (!call) tell_part("response.content_part.done");
  json = event("response.output_item.done");
  json.member("output_index", items().size() - 1).key("item");
  write_item(json, items().size() - 1, true);
  tell_event("response.output_item.done", std::move(json));
}

void ResponsesOutput::tell_end(const State& state) {
  const std::string_view status = response_status(state);
  tell_object(status, "response." + std::string(status), state);
}

}  // namespace troupe
