// Of an answer that is made of items: a Response or a Message.
#include <utility>

#include "actors/gateway/answer.h"
#include "actors/gateway/messages_output.h"
#include "actors/gateway/responses_output.h"
#include "model/tokenizer/utf8.h"

namespace troupe {

void Answer::begin_items(const ApiRequest& request) {
  if (request.response)
    items_ = std::make_unique<ResponsesOutput>(model_name_, request.response->echo, wishes_.stream);
  if (!request.message) return;
  items_ = std::make_unique<MessagesOutput>(model_name_, wishes_.stream);
  if (!stops_.empty()) stop_finder_.emplace(std::make_shared<const StopStrings>(stops_));
}

/// A byte at a time: so items come in the model's order, into however many pieces the text is cut.
/// Events have whole characters all the same.
void Answer::take_items_text(Choice& choice, std::string_view text, bool end) {
  items_->count(items_usage());
  if (!choice.parser) {
    items_->take({.reasoning = {}, .content = std::string(text), .calls = {}});
  } else {
    for (std::size_t i = 0; i < text.size(); ++i)
      take_items_delta(choice.parser->feed(text.substr(i, 1)));
    if (end) take_items_delta(choice.parser->finish());
  }
  if (end) items_->end(choice.finish == FinishReason::kLength);
}

void Answer::take_items_delta(AnswerDelta delta) {
  if (!wishes_.reasoning) delta.reasoning.clear();
  if (!wishes_.several_calls) std::erase_if(delta.calls, [](auto& call) { return call.index > 0; });
  for (CallDelta& call : delta.calls)
    if (!call.name.empty()) call.id = call_id(0, call);
  items_->take(delta);
}

/// Only a Message says which stop string ended it: that is read off the tokens, as the Router does.
void Answer::look_for_stop(TokenId token) {
  if (!stop_finder_) return;
  stop_bytes_ += text_of(token);
  std::string whole;
  stop_bytes_.erase(0, utf8::append_complete(whole, stop_bytes_));
  stop_finder_->feed(whole);
}

ItemOutput::Usage Answer::items_usage() const {
  const Usage usage = usage_of(0);
  return {usage.prompt, usage.cached, usage.completion, usage.reasoning};
}

/// As far as it is there.
ItemOutput::State Answer::items_state(const ApiError* error) const {
  return {.finish = choices_.front().finish,
          .stop = stop_finder_ ? stop_finder_->found() : std::string_view(),
          .error = error,
          .status = states_.empty() ? std::string_view() : status()};
}

void Answer::write_items(JsonWriter& json) {
  items_->count(items_usage());
  items_->write(json, items_state(failure_ ? &*failure_ : nullptr));
}

std::string Answer::items_end(const ApiError* error) {
  items_->count(items_usage());
  std::string out;
  items_->append_end(id_line(), items_state(error), out);
  return out;
}

}  // namespace troupe
