// Of an answer that is made of items: a Response or a Message.
#include <algorithm>
#include <utility>
#include <vector>

#include "actors/gateway/answer.h"
#include "actors/gateway/messages_output.h"
#include "actors/gateway/responses_output.h"

namespace troupe {

void Answer::begin_items(const ApiRequest& request) {
  if (request.response)
    items_ = std::make_unique<ResponsesOutput>(model_name_, *request.response, names_,
                                               wishes_.logprobs, wishes_.stream);
  if (request.response && wishes_.logprobs >= 0) item_tokens_.emplace();
  if (request.message) items_ = std::make_unique<MessagesOutput>(model_name_, wishes_.stream);
  if (items_) item_texts_.emplace(token_texts());
}

/// A token at a time: so the events of a stream, and their numbers, are the same in whichever
/// pieces its tokens come. What the text has at its end beside them is told apart, too.
void Answer::take_items_tokens(Choice& choice, const GenerationEvent& event) {
  items_->count(items_usage());
  std::string_view text = event.text;
  for (std::size_t i = 0; i < event.tokens.size(); ++i) {
    const bool ends = i + 1 == event.tokens.size() && event.finish == FinishReason::kStop;
    const std::string_view bytes = text_of(event.tokens[i].token);
    const std::size_t size = item_texts_->feed(bytes, ends).size();
    if (item_tokens_ && !bytes.empty()) item_tokens_->add(event.tokens[i], item_texts_->size());
    const std::string_view piece = text.substr(0, size);
    text.remove_prefix(piece.size());
    take_items_text(choice, piece);
    items_->tell();
  }
  if (event.finish != FinishReason::kNone) static_cast<void>(item_texts_->finish());
  if (item_tokens_) item_tokens_->end(item_texts_->size());
  take_items_text(choice, text);
  items_->tell();
}

void Answer::end_items(Choice& choice) {
  if (choice.parser) {
    const std::size_t held = choice.parser->held();
    AnswerDelta rest = choice.parser->finish();
    const std::size_t size = std::min(held, rest.content.size());
    take_items_delta(std::move(rest), held - size);
  }
  items_->end(choice.finish == FinishReason::kLength);
}

/// A byte at a time: so items come in the model's order, into however many pieces the text is cut.
/// Events have whole characters all the same.
void Answer::take_items_text(Choice& choice, std::string_view text) {
  if (!choice.parser) {
    if (item_tokens_) item_tokens_->read(text.size());
    return take_items_delta({.reasoning = {}, .content = std::string(text), .calls = {}}, 0);
  }
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (item_tokens_) item_tokens_->read(1);
    AnswerDelta delta = choice.parser->feed(text.substr(i, 1));
    take_items_delta(std::move(delta), choice.parser->held());
  }
}

/// `held`: so much text is behind the content that came.
void Answer::take_items_delta(AnswerDelta delta, std::size_t held) {
  if (!wishes_.reasoning) delta.reasoning.clear();
  if (!wishes_.several_calls) std::erase_if(delta.calls, [](auto& call) { return call.index > 0; });
  for (CallDelta& call : delta.calls)
    if (!call.name.empty()) call.id = call_id(0, call);
  items_->take(delta, item_tokens_ ? item_tokens_->take(delta.content.size(), held)
                                   : std::vector<TokenOutput>());
}

/// What its client has, as it came.
GenerationEvent Answer::items_past(const Choice& choice) const {
  GenerationEvent past;
  past.text = text_had(choice);
  past.finish = choice.finish;
  for (std::size_t i = 0; i < choice.tokens.size(); ++i) past.tokens.push_back(choice.tokens.at(i));
  return past;
}

ItemOutput::Usage Answer::items_usage() const {
  const Usage usage = usage_of(0);
  return {usage.prompt, usage.cached, usage.completion, usage.reasoning};
}

/// As far as it is there.
ItemOutput::State Answer::items_state(const ApiError* error) const {
  return {.finish = choices_.front().finish,
          .stop = item_texts_->stop(),
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
