#include "actors/gateway/responses_past.h"

#include <algorithm>
#include <future>
#include <memory>
#include <utility>

#include "actors/gateway/answer.h"
#include "actors/gateway/found_request.h"
#include "actors/gateway/responses_input.h"
#include "actors/gateway/responses_items.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using nlohmann::json;

constexpr const char* kField = "previous_response_id";
constexpr const char* kNoPreviousResponse = "previous_response_not_found";

/// Keeps what comes until the last of it.
class PastSink : public GenerationSink {
 public:
  using Events = std::vector<GenerationEvent>;
  void on_event(GenerationEvent event) override {
    const bool last = event.request_done || event.error;
    events_.push_back(std::move(event));
    if (last && !std::exchange(ended_, true)) promise_.set_value(std::move(events_));
  }
  std::future<Events> all() { return promise_.get_future(); }

 private:
  Events events_;
  bool ended_ = false;
  std::promise<Events> promise_;
};

/// Within quotes; a client may have sent anything.
std::string shown(const std::string& id) {
  return "'" + id.substr(0, limits::kHttpRequestIdBytesMax) + "'";
}

ApiError not_there(std::string reason) {
  return {
      .status = 400, .message = std::move(reason), .param = kField, .code = kNoPreviousResponse};
}

/// Why nothing can be taken from a response; nothing: it can.
std::optional<ApiError> refusal(const FoundRequest& found) {
  const std::string response = "the response " + shown(found.id);
  if (found.request.response->messages.empty())
    return not_there(response + " was not stored (store was false)");
  const auto state = found.prompts.front().state;
  if (state == NamedRequest::State::kFailed) return bad_field(kField, response + " failed");
  if (state != NamedRequest::State::kFinished)
    return bad_field(kField, response + " has not ended yet");
  return std::nullopt;
}

ApiError overloaded() {
  return to_api_error(unavailable("The Router is overloaded; try again later."));
}

}  // namespace

/// Into last_.
std::optional<ApiError> PastResponses::read(const std::string& id) {
  if (last_ && last_->id == id) return std::nullopt;
  last_.reset();
  if (!until_) until_ = now() + limits::kRouterAnswerDeadline;
  if (now() >= *until_) return overloaded();
  FoundRequest found;
  found.id = id;
  found.owner = owner_;
  const auto trouble = find_request(requests_, model_, found);
  if (trouble && trouble->status != 404) return trouble;
  if (trouble || !found.request.response)
    return not_there("there is no response " + shown(id) + " (any more)");
  if (auto error = refusal(found)) return error;

  const auto sink = std::make_shared<PastSink>();
  auto all = sink->all();
  const auto accepted =
      requests_.attach({.id = id, .owner = owner_, .index = 0, .from = {}, .follow = false}, sink);
  if (!accepted) return to_api_error(accepted.error());
  if (all.wait_for(*until_ - now()) != std::future_status::ready) return overloaded();
  Answer answer(found.request, model_, id, found.created_unix_s);
  std::string text;  // It is no stream.
  for (GenerationEvent& event : all.get()) {
    if (event.error) return to_api_error(*event.error);
    answer.add(0, std::move(event), text);
  }
  Past past{.id = id, .asked = found.request.response->messages, .answered = {}, .items = {}};
  JsonWriter last;
  last.begin_array();
  answer.write_chat_message(last);
  past.answered = std::move(last.end_array()).text();
  auto items = input_items(id, past.asked);
  if (!items) return to_api_error(items.error());
  for (const InputItem& item : *items) past.items.push_back(json::parse(item.text));
  while (!answer.write_piece(text)) {
  }
  for (const json object = json::parse(text); const json& item : object["output"])
    past.items.push_back(item);
  last_ = std::move(past);
  return std::nullopt;
}

std::optional<ApiError> PastResponses::conversation(const std::string& id, std::string& messages) {
  if (auto error = read(id)) {
    if (error->status == 400)
      error->message = "previous_response_id cannot be followed: " + error->message +
                       "; send the items in input instead.";
    return error;
  }
  messages = join_json_lists(last_->asked, last_->answered);
  return std::nullopt;
}

std::optional<ApiError> PastResponses::item(const std::string& id, json& item) {
  // What it is, its response's name, and its place there.
  const auto name = id.find('_');
  const auto place = name == id.npos ? id.npos : id.find('_', name + 1);
  if (place == id.npos) return not_there("it is no item's id");
  if (auto error = read("resp" + id.substr(name, place - name))) return error;
  const auto found = std::ranges::find_if(
      last_->items, [&](const json& one) { return one.value("id", "") == id; });
  if (found == last_->items.end())
    return not_there("the response " + shown(last_->id) + " has no such item");
  item = *found;
  return std::nullopt;
}

}  // namespace troupe
