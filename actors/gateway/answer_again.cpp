// Of an answer whose request is found again: where its client stands, and what state it is in.
#include <algorithm>
#include <cassert>
#include <limits>
#include <utility>

#include "actors/gateway/answer.h"

namespace troupe {
void Answer::resume(TokenCounts had) {
  assert(had.size() == choices_.size());
  shows_counts_ = true;
  for (std::size_t i = 0; i < had.size(); ++i) {
    choices_[i].count = had[i];
    choices_[i].begun = had[i] > 0;
    completion_tokens_ += had[i];
  }
}

bool Answer::needs_past() const {
  const auto begun = [](const Choice& choice) { return choice.begun; };
  const bool reads_on =
      items_ || choices_.front().parser || (!wishes_.chat && wishes_.logprobs >= 0);
  return reads_on && std::any_of(choices_.begin(), choices_.end(), begun);
}

void Answer::add_past(std::size_t prompt_index, GenerationEvent event) {
  PromptState& prompt = prompts_[prompt_index];
  if (!event.prompt_tokens.empty() && prompt.tokens.empty()) take_prompt(prompt, event);
  if (event.choice >= wishes_.n) return;
  Choice& choice = choices_[prompt_index * wishes_.n + event.choice];
  choice.finish = event.finish;
  for (const TokenOutput& token : event.tokens) {
    if (choice.tokens.size() == choice.count) break;
    choice.tokens.add(token);
    look_at(choice, token.token);
  }
}

void Answer::past_is_there() {
  for (std::size_t i = 0; i < choices_.size(); ++i) {
    Choice& choice = choices_[i];
    // All of it has been sent: writing it once more takes the parser and the offsets to its end.
    if (items_ && choice.begun) {
      take_items_tokens(choice, items_past(choice));
      items_->skip_events();
    } else if (choice.parser) {
      take_delta(choice, choice.parser->feed(text_had(choice)));
      choice.reasoning.clear();
      choice.content.clear();
      choice.calls.clear();
    }
    if (!wishes_.chat && choice.begun) {
      JsonWriter sent;
      LogprobsPlace from_the_beginning;
      write_logprobs(sent, choice, wishes_.echo ? &prompts_[i / wishes_.n] : nullptr,
                     from_the_beginning, std::numeric_limits<std::size_t>::max());
    }
    choice.tokens.clear();
  }
}

/// What the Router writes of a token: nothing of special ones, but for the tags that the parser is
/// told by.
std::string_view Answer::text_of(TokenId token) const {
  const std::string_view bytes = model_.token_bytes(token);
  const bool tag = std::find(tags_.begin(), tags_.end(), bytes) != tags_.end();
  const bool shown = tag || names_.special_in_text || !model_.is_special(token);
  return shown ? bytes : std::string_view();
}

TokenTexts Answer::token_texts() const {
  return TokenTexts(
      {.stops = stops_, .shows_end = wishes_.stop_in_text, .min_tokens = wishes_.min_tokens});
}

/// The text that the Router gave out with these tokens.
std::string Answer::text_had(const Choice& choice) const {
  TokenTexts texts = token_texts();
  std::string text;
  for (std::size_t i = 0; i < choice.tokens.size(); ++i) {
    const bool last = i + 1 == choice.tokens.size();
    text += texts.feed(text_of(choice.tokens.chosen(i).token),
                       last && choice.finish == FinishReason::kStop);
  }
  return choice.finish == FinishReason::kNone ? text : text + texts.finish();
}

void Answer::fail(std::size_t prompt_index, ApiError error) {
  PromptState& prompt = prompts_[prompt_index];
  if (prompt.done) return;
  prompt.done = true;
  ++prompts_done_;
  if (!failure_) failure_ = std::move(error);
}

std::string_view Answer::status() const {
  if (failure_) return "failed";
  std::size_t finished = 0;
  bool begun = false;
  for (std::size_t prompt = 0; prompt < prompts_.size(); ++prompt) {
    const auto first = choices_.begin() + static_cast<std::ptrdiff_t>(prompt * wishes_.n);
    const auto last = first + wishes_.n;
    const bool ended = std::all_of(
        first, last, [](const Choice& choice) { return choice.finish != FinishReason::kNone; });
    if (ended || states_[prompt] == State::kFinished) ++finished;
    begun = begun || states_[prompt] != State::kQueued ||
            std::any_of(first, last, [](const Choice& choice) { return choice.count > 0; });
  }
  if (finished == prompts_.size()) return "finished";
  return begun ? "running" : "queued";
}

}  // namespace troupe
