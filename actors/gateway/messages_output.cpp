#include "actors/gateway/messages_output.h"

#include <array>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <utility>

#include "runtime/xxh3.h"

namespace troupe {
namespace {

JsonWriter message_event(std::string_view type) {
  JsonWriter json;
  json.begin_object().member("type", type);
  return json;
}

/// Clients send a thought back only with one. What they send is believed without it.
std::string signature_of(std::string_view thought) {
  const Digest digest = xxh3_128(thought.data(), thought.size());
  std::array<char, 40> text{};
  std::snprintf(text.data(), text.size(), "%016llx%016llx",
                static_cast<unsigned long long>(digest.high),
                static_cast<unsigned long long>(digest.low));
  return text.data();
}

/// What clients take for a call's input is an object. A call that was cut off, or that the model
/// wrote wrongly, is none: the stream shows as much of it as there is.
std::string_view input_of(std::string_view arguments) {
  const auto first = arguments.find_first_not_of(" \t\r\n");
  // The library takes a zero byte for the end of what it reads.
  const bool object = first != arguments.npos && arguments[first] == '{' &&
                      arguments.find('\0') == arguments.npos && nlohmann::json::accept(arguments);
  return object ? arguments : "{}";
}

}  // namespace

/// `whole`: as it is now; or else as it began.
void MessagesOutput::write_block(JsonWriter& json, const Item& item, bool whole) const {
  const std::string_view text = whole ? std::string_view(item.text) : std::string_view();
  json.begin_object();
  switch (item.kind) {
    case Kind::kReasoning:
      json.member("type", "thinking").member("thinking", text);
      json.member("signature", whole ? signature_of(text) : std::string());
      break;
    case Kind::kMessage:
      json.member("type", "text").member("text", text);
      break;
    case Kind::kCall:
      json.member("type", "tool_use").member("id", item.call_id).member("name", item.name);
      json.key("input").raw(input_of(text));
      break;
  }
  json.end_object();
}

/// Why it ended; null while it has not.
void MessagesOutput::write_stop(JsonWriter& json, const State& state) const {
  bool called = false;
  for (const Item& item : items()) called = called || item.kind == Kind::kCall;
  std::string_view reason, stop;
  if (state.finish == FinishReason::kLength) reason = "max_tokens";
  if (state.finish == FinishReason::kStop) {
    stop = state.stop;
    reason = !stop.empty() ? "stop_sequence" : called ? "tool_use" : "end_turn";
  }
  json.member_or_null("stop_reason", reason).member_or_null("stop_sequence", stop);
}

/// Anthropic counts apart what the prefix cache had.
void MessagesOutput::write_usage(JsonWriter& json) const {
  json.begin_object().member("input_tokens", usage().input - usage().cached);
  json.member("cache_creation_input_tokens", 0);
  json.member("cache_read_input_tokens", usage().cached);
  json.member("output_tokens", usage().output);
  json.key("output_tokens_details").begin_object().member("thinking_tokens", usage().reasoning);
  json.end_object().end_object();
}

void MessagesOutput::write(JsonWriter& json, const State& state) const {
  json.begin_object().member("id", id()).member("type", "message").member("role", "assistant");
  json.member("model", model_).key("content").begin_array();
  for (const Item& item : items()) write_block(json, item, true);
  json.end_array();
  write_stop(json, state);
  json.key("usage");
  write_usage(json);
  if (!state.status.empty()) json.member("status", state.status);
  if (state.error != nullptr) write_message_error(json, *state.error);
  json.end_object();
}

// --- Events -------------------------------------------------------------------------------------

JsonWriter MessagesOutput::block_event(std::string_view type) const {
  JsonWriter json = message_event(type);
  json.member("index", items().size() - 1);
  return json;
}

void MessagesOutput::tell_start() {
  JsonWriter json = message_event("message_start");
  json.key("message").begin_object().member("id", id()).member("type", "message");
  json.member("role", "assistant").member("model", model_);
  json.key("content").begin_array().end_array();
  write_stop(json, {});
  json.key("usage");
  write_usage(json);
  json.end_object();
  add_event("message_start", std::move(json));
  add_event("ping", message_event("ping"));
}

void MessagesOutput::tell_item() {
  JsonWriter json = block_event("content_block_start");
  json.key("content_block");
  write_block(json, items().back(), false);
  add_event("content_block_start", std::move(json));
}

void MessagesOutput::tell_more(std::string_view more) {
  JsonWriter json = block_event("content_block_delta");
  json.key("delta").begin_object();
  switch (items().back().kind) {
    case Kind::kReasoning:
      json.member("type", "thinking_delta").member("thinking", more);
      break;
    case Kind::kMessage:
      json.member("type", "text_delta").member("text", more);
      break;
    case Kind::kCall:
      json.member("type", "input_json_delta").member("partial_json", more);
      break;
  }
  json.end_object();
  add_event("content_block_delta", std::move(json));
}

void MessagesOutput::tell_item_end() {
  if (items().back().kind == Kind::kReasoning) {
    JsonWriter json = block_event("content_block_delta");
    json.key("delta").begin_object().member("type", "signature_delta");
    json.member("signature", signature_of(items().back().text)).end_object();
    add_event("content_block_delta", std::move(json));
  }
  add_event("content_block_stop", block_event("content_block_stop"));
}

void MessagesOutput::tell_end(const State& state) {
  if (state.error != nullptr) {
    JsonWriter json = message_event("error");
    write_message_error(json, *state.error);
    return add_event("error", std::move(json));
  }
  JsonWriter json = message_event("message_delta");
  json.key("delta").begin_object();
  write_stop(json, state);
  json.end_object().key("usage");
  write_usage(json);
  add_event("message_delta", std::move(json));
  add_event("message_stop", message_event("message_stop"));
}

}  // namespace troupe
