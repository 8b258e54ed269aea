// Of an answer that is a Response.
#include <utility>

#include "actors/gateway/answer.h"

namespace troupe {

/// A byte at a time: so items come in the model's order, into however many pieces the text is cut.
/// Events have whole characters all the same.
void Answer::take_response_text(Choice& choice, std::string_view text, bool end) {
  if (!choice.parser) {
    response_->take({.reasoning = {}, .content = std::string(text), .calls = {}});
  } else {
    for (std::size_t i = 0; i < text.size(); ++i)
      take_response_delta(choice.parser->feed(text.substr(i, 1)));
    if (end) take_response_delta(choice.parser->finish());
  }
  if (end) response_->end(choice.finish == FinishReason::kLength);
}

void Answer::take_response_delta(AnswerDelta delta) {
  if (!wishes_.several_calls) std::erase_if(delta.calls, [](auto& call) { return call.index > 0; });
  for (CallDelta& call : delta.calls)
    if (!call.name.empty()) call.id = call_id(0, call);
  response_->take(delta);
}

ResponsesOutput::Usage Answer::response_usage() const {
  const Usage usage = usage_of(0);
  return {usage.prompt, usage.cached, usage.completion, usage.reasoning};
}

/// As far as it is there.
void Answer::write_response(JsonWriter& json) const {
  const ResponsesOutput::Usage usage = response_usage();
  ResponsesOutput::State state{.status = "in_progress", .usage = &usage};
  const FinishReason finish = choices_.front().finish;
  if (failure_) {
    state = {.status = "failed", .usage = &usage, .error = &*failure_};
  } else if (finish == FinishReason::kNone) {
    state = {.status = status() == "queued" ? "queued" : "in_progress"};
  } else {
    state.status = finish == FinishReason::kLength ? "incomplete" : "completed";
  }
  response_->write(json, state);
}

std::string Answer::response_end(const ApiError* error) {
  const ResponsesOutput::Usage usage = response_usage();
  const bool cut_off = choices_.front().finish == FinishReason::kLength;
  const std::string_view status = error ? "failed" : cut_off ? "incomplete" : "completed";
  std::string out;
  response_->append_end(id_line(), {.status = status, .usage = &usage, .error = error}, out);
  return out;
}

}  // namespace troupe
