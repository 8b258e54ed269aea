#include "actors/router/told_again.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

std::uint32_t from_of(std::span<const std::uint32_t> from, std::uint32_t choice) {
  return choice < from.size() ? from[choice] : 0;
}

void add_prompt(const Journal::Request& known, GenerationEvent& event) {
  event.prompt_tokens = known.prepared->prompt;
  event.hidden = known.hidden;
  if (known.prompt_logprobs)
    for (std::size_t i = 0; i < known.prompt_logprobs->size(); ++i)
      event.prompt_logprobs.push_back(known.prompt_logprobs->at(i));
}

}  // namespace

/// Whether that is all of it. The event has nothing to say if nothing of it is new to the reader.
bool ToldAgain::tell_choice(const Journal::Sequence& sequence, std::size_t from,
                            std::size_t& tokens, GenerationEvent& event) {
  const PreparedRequest& prepared = *sequence.prepared;
  Choice& choice = choices_[sequence.choice];
  const std::size_t count = sequence.output.size();
  const bool finished = sequence.finish != FinishReason::kNone;
  const bool stop_token = sequence.finish == FinishReason::kStop && count > 0 &&
                          std::ranges::count(prepared.stop_tokens, sequence.output.back()) > 0;
  for (; choice.at < count && tokens > 0; ++choice.at, --tokens) {
    const std::size_t i = choice.at;
    const std::string piece =
        choice.text.feed(sequence.output[i], stop_token && i + 1 == count);
    if (i < from) continue;
    event.text += piece;
    event.tokens.push_back(sequence.logprobs ? sequence.logprobs->at(i)
                                             : TokenOutput{sequence.output[i], 0, {}});
  }
  if (choice.at < count) return false;
  if (!finished || std::exchange(choice.over, true)) return true;
  event.finish = sequence.finish;
  // An end comes with the last token.
  if (count > from) event.text += choice.text.finish();
  return true;
}

bool ToldAgain::tell(const Journal& journal, std::uint64_t request,
                     const std::shared_ptr<const Tokenizer>& tokenizer, std::size_t& tokens,
                     std::vector<GenerationEvent>& out) {
  const Journal::Request& known = *journal.request(request);
  const PreparedRequest& prepared = *known.prepared;
  if (choices_.empty()) {
    const auto stops = std::make_shared<const StopStrings>(
        prepared.stop, prepared.include_stop_str_in_output);
    for (std::uint32_t i = 0; i < prepared.n; ++i)
      choices_.push_back({ChoiceText(tokenizer, prepared, stops)});
  }
  const std::size_t before = out.size();
  bool all = true;
  for (std::uint32_t i = 0; i < prepared.n && all; ++i) {
    GenerationEvent event;
    event.choice = i;
    all = tell_choice(*journal.find(SequenceId{known.first_sequence.value + i}),
                      from_of(from_, i), tokens, event);
    const bool news = !event.tokens.empty() || event.finish != FinishReason::kNone;
    if (news || (all && !choices_[i].begun)) {
      choices_[i].begun = true;
      out.push_back(std::move(event));
    }
  }
  if (prompt_untold_ && out.size() > before) {
    prompt_untold_ = false;
    add_prompt(known, out[before]);
  }
  return all;
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

Status can_have(const Journal& journal, std::uint64_t request,
                std::span<const std::uint32_t> from) {
  const Journal::Request& known = *journal.request(request);
  for (std::uint32_t choice = 0; choice < known.prepared->n; ++choice) {
    const Journal::Sequence& sequence =
        *journal.find(SequenceId{known.first_sequence.value + choice});
    const bool ended = sequence.finish != FinishReason::kNone;
    const std::size_t most = ended ? sequence.output.size() : known.prepared->max_tokens;
    if (from_of(from, choice) > most)
      return invalid_argument("from: choice " + std::to_string(choice) +
                              (ended ? " ended with " : " may have at most ") +
                              std::to_string(most) + " tokens, fewer than " +
                              std::to_string(from_of(from, choice)) + ".");
  }
  return {};
}

}  // namespace troupe
