#include "actors/gateway/item_output.h"

#include <utility>

namespace troupe {

void ItemOutput::take(const AnswerDelta& delta, const std::vector<TokenOutput>& tokens) {
  begin_stream();
  if (!delta.reasoning.empty()) item(Kind::kReasoning).text += delta.reasoning;
  // The end of a call comes before the text behind it, a new one after that.
  auto call = delta.calls.begin();
  for (; call != delta.calls.end() && call->name.empty(); ++call)
    if (open(Kind::kCall)) items_.back().text += call->arguments;
  if (!delta.content.empty()) {
    Item& message = item(Kind::kMessage);
    message.text += delta.content;
    for (const TokenOutput& token : tokens) message.tokens.add(token);
  }
  for (; call != delta.calls.end(); ++call) {
    if (!call->name.empty()) begin({.kind = Kind::kCall, .name = call->name, .call_id = call->id});
    if (open(Kind::kCall)) items_.back().text += call->arguments;
  }
}

/// The one that is open, or a new one.
ItemOutput::Item& ItemOutput::item(Kind kind) {
  if (!open(kind)) begin({.kind = kind});
  return items_.back();
}

void ItemOutput::begin(Item item) {
  close(false);
  item.tokens = KeptTokens(alternatives_);
  items_.push_back(std::move(item));
  if (stream_) tell_item();
}

void ItemOutput::close(bool cut_off) {
  if (items_.empty() || items_.back().ended) return;
  tell();
  items_.back().ended = true;
  items_.back().cut_off = cut_off;
  if (stream_) tell_item_end();
}

void ItemOutput::end(bool cut_off) {
  if (std::exchange(ended_, true)) return;
  close(cut_off);
}

void ItemOutput::tell() {
  if (!stream_ || items_.empty()) return;
  Item& item = items_.back();
  if (item.told == item.text.size()) return;
  tell_more(std::string_view(item.text).substr(item.told));
  item.told = item.text.size();
  item.told_tokens = item.tokens.size();
}

void ItemOutput::begin_stream() {
  if (stream_ && !std::exchange(begun_, true)) tell_start();
}

void ItemOutput::add_event(std::string_view type, JsonWriter json) {
  last_event_ = events_.size();
  events_ += "event: ";
  events_ += type;
  events_ += "\ndata: " + json.end_object().take() + "\n\n";
}

void ItemOutput::append_events(std::string_view id_line, std::string& out) {
  begin_stream();
  tell();
  if (events_.empty()) return;
  out += std::string_view(events_).substr(0, last_event_);
  out += id_line;
  out += std::string_view(events_).substr(last_event_);
  events_.clear();
}

void ItemOutput::append_end(std::string_view id_line, const State& state, std::string& out) {
  begin_stream();
  tell_end(state);
  append_events(id_line, out);
}

void ItemOutput::skip_events() {
  begin_stream();
  tell();
  events_.clear();
}

void ItemOutput::write_chat_message(JsonWriter& json) const {
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

}  // namespace troupe
