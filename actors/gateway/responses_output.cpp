#include "actors/gateway/responses_output.h"

#include <algorithm>
#include <utility>

#include "model/chat/json_extent.h"

namespace troupe {
namespace {

constexpr std::string_view kInProgress = "in_progress", kCompleted = "completed",
                           kIncomplete = "incomplete";

/// The one part of a message, or of thoughts.
void write_part(JsonWriter& json, bool reasoning, std::string_view text) {
  json.begin_object().member("type", reasoning ? "reasoning_text" : "output_text");
  json.member("text", text);
  if (!reasoning) {
    json.key("annotations").begin_array().end_array();
    json.key("logprobs").begin_array().end_array();
  }
  json.end_object();
}

void write_usage(JsonWriter& json, const ResponsesOutput::Usage& usage) {
  json.begin_object().member("input_tokens", usage.input);
  json.key("input_tokens_details").begin_object().member("cached_tokens", usage.cached);
  json.end_object().member("output_tokens", usage.output);
  json.key("output_tokens_details").begin_object().member("reasoning_tokens", usage.reasoning);
  json.end_object().member("total_tokens", usage.input + usage.output).end_object();
}

}  // namespace

// --- Items --------------------------------------------------------------------------------------

void ResponsesOutput::take(const AnswerDelta& delta) {
  begin_stream();
  if (!delta.reasoning.empty()) item(Kind::kReasoning).text += delta.reasoning;
  if (!delta.content.empty()) item(Kind::kMessage).text += delta.content;
  for (const CallDelta& call : delta.calls) {
    if (!call.name.empty()) begin({.kind = Kind::kCall, .name = call.name, .call_id = call.id});
    if (open(Kind::kCall)) items_.back().text += call.arguments;
  }
}

/// The one that is open, or a new one.
ResponsesOutput::Item& ResponsesOutput::item(Kind kind) {
  if (!open(kind)) begin({.kind = kind});
  return items_.back();
}

void ResponsesOutput::begin(Item item) {
  close(kCompleted);
  const bool has_parts = item.kind != Kind::kCall;
  items_.push_back(std::move(item));
  if (!about_.stream) return;
  JsonWriter json = event("response.output_item.added");
  json.member("output_index", items_.size() - 1).key("item");
  write_item(json, items_.size() - 1, false);
  add("response.output_item.added", std::move(json));
  if (has_parts) part_event("response.content_part.added");
}

void ResponsesOutput::close(std::string_view status) {
  if (items_.empty() || items_.back().status != kInProgress) return;
  tell_more();
  Item& item = items_.back();
  item.status = status;
  if (!about_.stream) return;
  const bool call = item.kind == Kind::kCall;
  const std::string_view done = call ? "response.function_call_arguments.done"
                                : item.kind == Kind::kMessage ? "response.output_text.done"
                                                              : "response.reasoning_text.done";
  JsonWriter json = item_event(done);
  json.member(call ? "arguments" : "text", item.text);
  if (call) json.member("name", item.name);
  if (item.kind == Kind::kMessage) json.key("logprobs").begin_array().end_array();
  add(done, std::move(json));
  if (!call) part_event("response.content_part.done");
  json = event("response.output_item.done");
  json.member("output_index", items_.size() - 1).key("item");
  write_item(json, items_.size() - 1, true);
  add("response.output_item.done", std::move(json));
}

void ResponsesOutput::end(bool cut_off) {
  if (std::exchange(ended_, true)) return;
  close(cut_off ? kIncomplete : kCompleted);
}

std::string ResponsesOutput::item_id(std::size_t index) const {
  const Kind kind = items_[index].kind;
  const char* const prefix = kind == Kind::kCall ? "fc" : kind == Kind::kMessage ? "msg" : "rs";
  return prefix + id_.substr(std::min(id_.find('_'), id_.size())) + "_" + std::to_string(index);
}

/// `whole`: as it is now; or else as it began.
void ResponsesOutput::write_item(JsonWriter& json, std::size_t index, bool whole) const {
  const Item& item = items_[index];
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
    if (whole) write_part(json, reasoning, text);
    json.end_array();
  }
  json.member("status", item.status).end_object();
}

void ResponsesOutput::write_chat_message(JsonWriter& json) const {
  std::string content, thought;
  bool called = false;
  for (const Item& item : items_) {
    if (item.kind == Kind::kReasoning) thought += item.text;
    if (item.kind == Kind::kMessage) content += item.text;
    called = called || item.kind == Kind::kCall;
  }
  json.begin_object().member("role", "assistant").member_or_null("content", content);
  if (!thought.empty()) json.member("reasoning_content", thought);
  if (called) {
    json.key("tool_calls").begin_array();
    for (const Item& item : items_) {
      if (item.kind != Kind::kCall) continue;
      json.begin_object().member("id", item.call_id).member("type", "function");
      json.key("function").begin_object().member("name", item.name);
      json.member("arguments", item.text).end_object().end_object();
    }
    json.end_array();
  }
  json.end_object();
}

// --- The object ---------------------------------------------------------------------------------

void ResponsesOutput::write(JsonWriter& json, const State& state) const {
  json.begin_object().member("id", id_).member("object", "response");
  json.member("created_at", created_unix_s_).member("status", state.status);
  json.key("error");
  if (state.error == nullptr) {
    json.null();
  } else {
    json.begin_object().member("code", "server_error");
    json.member("message", state.error->message).end_object();
  }
  json.key("incomplete_details");
  if (state.status == kIncomplete) {
    json.begin_object().member("reason", "max_output_tokens").end_object();
  } else {
    json.null();
  }
  json.member("model", about_.model).key("output").begin_array();
  for (std::size_t i = 0; i < items_.size(); ++i) write_item(json, i, true);
  json.end_array().key("usage");
  if (state.usage == nullptr) {
    json.null();
  } else {
    write_usage(json, *state.usage);
  }
  each_json_child(about_.echo, [&json](std::string_view name, std::string_view value) {
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

/// Of the last item.
JsonWriter ResponsesOutput::item_event(std::string_view type) {
  JsonWriter json = event(type);
  json.member("item_id", item_id(items_.size() - 1));
  json.member("output_index", items_.size() - 1);
  if (items_.back().kind != Kind::kCall) json.member("content_index", 0);
  return json;
}

void ResponsesOutput::add(std::string_view type, JsonWriter json) {
  last_event_ = events_.size();
  events_ += "event: ";
  events_ += type;
  events_ += "\ndata: " + json.end_object().take() + "\n\n";
}

void ResponsesOutput::part_event(std::string_view type) {
  JsonWriter json = item_event(type);
  json.key("part");
  write_part(json, items_.back().kind == Kind::kReasoning, items_.back().text);
  add(type, std::move(json));
}

void ResponsesOutput::tell_more() {
  Item& item = items_.back();
  if (!about_.stream || item.told == item.text.size()) return;
  const std::string_view type = item.kind == Kind::kCall ? "response.function_call_arguments.delta"
                                : item.kind == Kind::kMessage ? "response.output_text.delta"
                                                              : "response.reasoning_text.delta";
  JsonWriter json = item_event(type);
  json.member("delta", std::string_view(item.text).substr(item.told));
  if (item.kind == Kind::kMessage) json.key("logprobs").begin_array().end_array();
  item.told = item.text.size();
  add(type, std::move(json));
}

void ResponsesOutput::tell_state(std::string_view type, const State& state) {
  JsonWriter json = event(type);
  json.key("response");
  write(json, state);
  add(type, std::move(json));
}

void ResponsesOutput::begin_stream() {
  if (!about_.stream || std::exchange(begun_, true)) return;
  tell_state("response.created", {.status = kInProgress});
  tell_state("response.in_progress", {.status = kInProgress});
}

void ResponsesOutput::append_events(std::string_view id_line, std::string& out) {
  begin_stream();
  if (!items_.empty()) tell_more();
  if (events_.empty()) return;
  out += std::string_view(events_).substr(0, last_event_);
  out += id_line;
  out += std::string_view(events_).substr(last_event_);
  events_.clear();
}

void ResponsesOutput::append_end(std::string_view id_line, const State& state, std::string& out) {
  begin_stream();
  tell_state("response." + std::string(state.status), state);
  append_events(id_line, out);
}

void ResponsesOutput::skip_events() {
  begin_stream();
  if (!items_.empty()) tell_more();
  events_.clear();
  for (const Item& item : items_) sequence_ += item.text.size();
}

}  // namespace troupe
