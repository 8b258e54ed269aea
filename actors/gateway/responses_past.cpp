#include "actors/gateway/responses_past.h"

#include <future>
#include <memory>
#include <utility>
#include <vector>

#include "actors/gateway/answer.h"
#include "actors/gateway/found_request.h"
#include "actors/gateway/responses_input.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

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

ApiError no_response(std::string what) {
  return {.status = 400, .message = std::move(what), .param = kField, .code = kNoPreviousResponse};
}

}  // namespace

std::optional<ApiError> recall_response(NamedRequests& requests, const GatewayModel& model,
                                        const std::string& id, std::uint64_t owner,
                                        std::string& messages) {
  FoundRequest found;
  found.id = id;
  found.owner = owner;
  const std::string shown = "'" + id.substr(0, limits::kHttpRequestIdBytesMax) + "'";
  const auto trouble = find_request(requests, model, found);
  if (trouble && trouble->status != 404) return trouble;
  if (trouble || !found.request.response)
    return no_response("There is no response " + shown +
                       " (any more); send its items in input instead of previous_response_id.");
  messages = std::move(found.request.response->messages);
  if (messages.empty())
    return no_response("The response " + shown +
                       " was not stored (store was false); send its items in input instead.");
  const auto state = found.prompts.front().state;
  if (state == NamedRequest::State::kFailed)
    return bad_field(kField, "The response " + shown + " failed, so that nothing can follow it.");
  if (state != NamedRequest::State::kFinished)
    return bad_field(kField, "The response " + shown + " has not ended yet; wait for its end.");

  const auto sink = std::make_shared<PastSink>();
  auto all = sink->all();
  const auto accepted =
      requests.attach({.id = id, .owner = owner, .index = 0, .from = {}, .follow = false}, sink);
  if (!accepted) return to_api_error(accepted.error());
  if (all.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready)
    return to_api_error(unavailable("The Router is overloaded; try again later."));
  Answer answer(found.request, model, id, found.created_unix_s);
  std::string nothing;  // It is no stream.
  for (GenerationEvent& event : all.get()) {
    if (event.error) return to_api_error(*event.error);
    answer.add(0, std::move(event), nothing);
  }
  JsonWriter last;
  last.begin_array();
  answer.write_chat_message(last);
  last.end_array();
  messages = join_json_lists(messages, last.text());
  return std::nullopt;
}

}  // namespace troupe
