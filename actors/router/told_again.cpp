#include "actors/router/told_again.h"

#include <algorithm>

#include "actors/router/choice_text.h"

namespace troupe {
namespace {

GenerationEvent event_of(const Journal::Sequence& sequence, std::size_t from, ChoiceText text) {
  const PreparedRequest& prepared = *sequence.prepared;
  GenerationEvent event;
  event.choice = sequence.choice;
  event.finish = sequence.finish;
  const std::size_t count = sequence.output.size();
  if (count <= from && sequence.finish == FinishReason::kNone) return event;
  const bool stop_token =
      sequence.finish == FinishReason::kStop && count > 0 &&
      std::ranges::count(prepared.stop_tokens, sequence.output.back()) > 0;
  for (std::size_t i = 0; i < count; ++i) {
    const std::string piece = text.feed(sequence.output[i], stop_token && i + 1 == count);
    if (i < from) continue;
    event.text += piece;
    event.tokens.push_back(sequence.logprobs ? sequence.logprobs->at(i)
                                             : TokenOutput{sequence.output[i], 0, {}});
  }
  // An end comes with the last token.
  if (sequence.finish != FinishReason::kNone && count > from) event.text += text.finish();
  return event;
}

std::uint32_t from_of(std::span<const std::uint32_t> from, std::uint32_t choice) {
  return choice < from.size() ? from[choice] : 0;
}

}  // namespace

std::vector<GenerationEvent> tell_again(const Journal& journal, std::uint64_t request,
                                        std::span<const std::uint32_t> from,
                                        const std::shared_ptr<const Tokenizer>& tokenizer) {
  const Journal::Request& known = *journal.request(request);
  const PreparedRequest& prepared = *known.prepared;
  const auto stops = std::make_shared<const StopStrings>(
      prepared.stop, prepared.include_stop_str_in_output);
  std::vector<GenerationEvent> events;
  for (std::uint32_t choice = 0; choice < prepared.n; ++choice)
    events.push_back(event_of(*journal.find(SequenceId{known.first_sequence.value + choice}),
                              from_of(from, choice), ChoiceText(tokenizer, prepared, stops)));
  events.front().prompt_tokens = prepared.prompt;
  events.front().hidden = known.hidden;
  if (known.prompt_logprobs)
    for (std::size_t i = 0; i < known.prompt_logprobs->size(); ++i)
      events.front().prompt_logprobs.push_back(known.prompt_logprobs->at(i));
  return events;
}

bool reaches(const Journal& journal, std::uint64_t request, std::span<const std::uint32_t> from) {
  const Journal::Request& known = *journal.request(request);
  for (std::uint32_t choice = 0; choice < known.prepared->n; ++choice) {
    const Journal::Sequence& sequence =
        *journal.find(SequenceId{known.first_sequence.value + choice});
    if (sequence.finish == FinishReason::kNone && sequence.output.size() < from_of(from, choice))
      return false;
  }
  return true;
}

}  // namespace troupe
