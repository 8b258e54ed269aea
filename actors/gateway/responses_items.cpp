#include "actors/gateway/responses_items.h"

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "actors/gateway/http_target.h"
#include "actors/gateway/json_writer.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr std::size_t kItemsDefault = 20, kItemsMax = 100;  // As OpenAI has it.

/// Makes the items of a chat's messages, one after the other.
class ItemWriter {
 public:
  explicit ItemWriter(std::string_view id) : name_(id.substr(std::min(id.find('_'), id.size()))) {}

  void write(const json& message) {
    const std::string role = message.value("role", "");
    const json content = message.value("content", json());
    if (role == "tool") {
      JsonWriter item = begin("fco", "function_call_output");
      item.member("call_id", message.value("tool_call_id", ""));
      if (content.is_string()) {
        item.member("output", content.get_ref<const std::string&>());
      } else {
        write_content(item, "output", "input_text", content);
      }
      return end(std::move(item));
    }
    if (const std::string thought = message.value("reasoning_content", ""); !thought.empty()) {
      JsonWriter item = begin("rs", "reasoning");
      item.key("summary").begin_array().end_array();
      write_content(item, "content", "reasoning_text", thought);
      end(std::move(item));
    }
    if (!content.is_null()) {
      JsonWriter item = begin("msg", "message");
      item.member("role", role);
      write_content(item, "content", role == "assistant" ? "output_text" : "input_text", content);
      end(std::move(item));
    }
    for (const json& call : message.value("tool_calls", json::array())) {
      JsonWriter item = begin("fc", "function_call");
      item.member("call_id", call.value("id", ""));
      item.member("name", call.at("function").value("name", ""));
      item.member("arguments", call.at("function").value("arguments", ""));
      end(std::move(item));
    }
  }

  std::vector<InputItem> items;

 private:
  JsonWriter begin(const char* prefix, const char* type) {
    items.push_back({prefix + name_ + "_in_" + std::to_string(items.size()), {}});
    JsonWriter item;
    item.begin_object().member("id", items.back().id).member("type", type);
    return item;
  }
  void end(JsonWriter item) {
    items.back().text = item.member("status", "completed").end_object().take();
  }

  static void write_content(JsonWriter& item, const char* name, const char* type,
                            const json& content) {
    item.key(name).begin_array();
    const auto part = [&](const json& text) {
      item.begin_object().member("type", type).member("text", text.get_ref<const std::string&>());
      if (std::string_view(type) == "output_text")
        item.key("annotations").begin_array().end_array();
      item.end_object();
    };
    if (content.is_string()) part(content);
    if (content.is_array())
      for (const json& of : content) part(of.at("text"));
    item.end_array();
  }

  const std::string name_;  // Of the Response, without its prefix.
};

Result<std::size_t> read_limit(std::string_view query) {
  const auto text = query_value(query, "limit");
  if (!text) return kItemsDefault;
  std::size_t limit = 0;
  const char* const last = text->data() + text->size();
  const auto read = std::from_chars(text->data(), last, limit);
  if (read.ec != std::errc() || read.ptr != last || limit == 0 || limit > kItemsMax)
    return invalid_argument("limit must be 1 to " + std::to_string(kItemsMax) + ".");
  return limit;
}

}  // namespace

Result<std::vector<InputItem>> input_items(std::string_view id, std::string_view messages) {
  ItemWriter writer(id);
  try {
    for (const json& message : json::parse(messages)) writer.write(message);
  } catch (const json::exception&) {  // They come back from a disk.
    return corrupt("The response's messages are none.");
  }
  return std::move(writer.items);
}

Result<std::string> write_input_items(std::string_view id, std::string_view messages,
                                      std::string_view query) {
  for (const char* name : {"limit", "order", "after"})
    if (query_count(query, name) > 1)
      return invalid_argument(std::string(name) + " is there more than once.");
  if (query_count(query, "before") > 0)
    return invalid_argument(
        "before is not supported: ask with after, in the order (asc, desc) that has it behind.");
  const Result<std::size_t> limit = read_limit(query);
  if (!limit) return limit.error();
  const std::string order = query_value(query, "order").value_or("desc");
  if (order != "asc" && order != "desc") return invalid_argument("order must be asc or desc.");
  auto items = input_items(id, messages);
  if (!items) return items.error();
  if (order == "desc") std::ranges::reverse(*items);
  auto first = items->begin();
  if (const auto after = query_value(query, "after")) {
    first = std::ranges::find(*items, *after, &InputItem::id);
    if (first == items->end()) return invalid_argument("after is no item of this response.");
    ++first;
  }
  const auto rest = static_cast<std::size_t>(items->end() - first);
  const auto last = first + static_cast<std::ptrdiff_t>(std::min(rest, *limit));
  JsonWriter list;
  list.begin_object().member("object", "list").key("data").begin_array();
  for (auto item = first; item != last; ++item) list.raw(item->text);
  list.end_array();
  list.member_or_null("first_id", first == last ? std::string_view() : first->id);
  list.member_or_null("last_id", first == last ? std::string_view() : std::prev(last)->id);
  return std::move(list.member("has_more", last != items->end()).end_object()).text();
}

}  // namespace troupe
