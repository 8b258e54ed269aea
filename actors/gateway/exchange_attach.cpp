// An Exchange whose requests were accepted before.
#include <algorithm>
#include <utility>

#include "actors/gateway/exchange.h"

namespace troupe {

std::optional<ApiError> Exchange::begin(const FoundRequest& found) {
  if (auto error = prepare(found.request, true)) return error;
  id_ = found.id;
  owner_ = found.owner;
  answer_ = std::make_unique<Answer>(found.request, model_, id_, found.created_unix_s);
  return std::nullopt;
}

std::optional<ApiError> Exchange::attach(FoundRequest found, std::optional<TokenCounts> from) {
  if (from && found.request.shown > 0)
    return bad_field("best_of",
                     "The best of several answers cannot be streamed; leave out /events.");
  if (from && found.request.pooled)
    return bad_field("id", "Hidden states cannot be streamed; leave out /events.");
  found.request.stream = from.has_value();
  if (auto error = begin(found)) return error;
  shows_errors_ = !from;
  if (from) {
    answer_->resume(*from);
  } else {
    std::vector<NamedRequest::State> states;
    for (const NamedRequest& prompt : found.prompts) states.push_back(prompt.state);
    answer_->show_status(std::move(states));
    from.emplace(found.choices(), 0);
  }
  for (std::size_t i = 0; i < found.prompts.size(); ++i) {
    if (!found.prompts[i].name) {
      GenerationEvent event;
      event.error =
          unavailable("Prompt " + std::to_string(i) + " of this request was not accepted.");
      on_event(i, std::move(event));
      continue;
    }
    const auto first = from->begin() + static_cast<std::ptrdiff_t>(i * n_);
    const RequestWanted wanted{.id = found.id,
                               .owner = found.owner,
                               .index = static_cast<std::uint32_t>(i),
                               .from = {first, first + n_},
                               .follow = stream_};
    if (auto error = keep(i, requests_.attach(wanted, sink(i)))) return error;
  }
  return answer_->needs_past() ? attach_past(found, *from) : std::nullopt;
}

bool Exchange::ask_again(const Asker& asker, std::optional<ApiError>& error) {
  if (asker.key.empty()) return false;
  FoundRequest found;
  found.owner = asker.owner;
  found.key = asker.key;
  if (find_request(requests_, model_, found)) return false;
  for (const NamedRequest& prompt : found.prompts)
    if (!prompt.name) return false;
  const bool same = found.prompts.front().name->body == asker.body;
  const bool stream = found.prompts.front().streams;
  error = same ? attach_all(std::move(found), stream) : to_api_error(used_key());
  return true;
}

std::optional<ApiError> Exchange::attach_all(FoundRequest found, bool stream) {
  found.request.stream = stream;
  if (auto error = begin(found)) return error;
  for (std::uint32_t i = 0; i < found.prompts.size(); ++i) {
    const RequestWanted all{.id = id_, .owner = owner_, .index = i, .from = {}};
    if (auto error = keep(i, requests_.attach(all, sink(i)))) return error;
  }
  return std::nullopt;
}

std::optional<ApiError> Exchange::attach_past(const FoundRequest& found, const TokenCounts& from) {
  std::vector<std::size_t> prompts;
  for (std::size_t i = 0; i < found.prompts.size(); ++i) {
    const auto first = from.begin() + static_cast<std::ptrdiff_t>(i * n_);
    const bool begun = std::any_of(first, first + n_, [](auto count) { return count > 0; });
    if (begun && found.prompts[i].name) prompts.push_back(i);
  }
  {
    std::lock_guard lock(mutex_);
    past_wanted_ = from;
    past_.resize(from.size());
    pasts_open_ = prompts.size();
  }
  for (const std::size_t i : prompts) {
    const RequestWanted wanted{.id = found.id,
                               .owner = found.owner,
                               .index = static_cast<std::uint32_t>(i),
                               .from = {},
                               .follow = true};
    if (auto error = keep(prompts_ + i, requests_.attach(wanted, sink(prompts_ + i)))) return error;
  }
  return std::nullopt;
}

/// A head that has begun again may still have to generate some of what the client has.
bool Exchange::past_is_whole(std::size_t prompt) const {
  const auto first = past_wanted_.begin() + static_cast<std::ptrdiff_t>(prompt * n_);
  return std::all_of(first, first + n_, [](auto wanted) { return wanted == 0; });
}

/// Keeps of it what is wanted: the prompt and tokens.
void Exchange::put_past(std::size_t prompt, GenerationEvent event) {
  const std::size_t choice = prompt * n_ + event.choice;
  std::uint32_t& wanted = past_wanted_[choice];
  const std::size_t count = std::min<std::size_t>(event.tokens.size(), wanted);
  wanted -= static_cast<std::uint32_t>(count);
  const std::size_t token_bytes = sizeof(TokenOutput) + past_alternatives_ * sizeof(TokenLogprob);
  count_caught(count * token_bytes + event.prompt_tokens.size() * sizeof(TokenId));
  GenerationEvent& past = past_[choice];
  past.choice = event.choice;
  if (wanted == 0 && count == event.tokens.size()) past.finish = event.finish;
  for (std::size_t i = 0; i < count; ++i) {
    past.tokens.push_back(std::move(event.tokens[i]));
    if (past_alternatives_ == 0) past.tokens.back().top = {};
  }
  if (!event.prompt_tokens.empty()) past.prompt_tokens = std::move(event.prompt_tokens);
  if (event.prompt_logprobs.empty()) return;
  count_caught(event.prompt_logprobs.size() * sizeof(TokenOutput));
  past.prompt_logprobs = std::move(event.prompt_logprobs);
}

void Exchange::tell_past() {
  std::vector<GenerationEvent> past;
  std::vector<std::uint64_t> going_on;
  {
    std::lock_guard lock(mutex_);
    if (past_.empty()) return;
    past.swap(past_);
    for (std::size_t i = prompts_; i < readers_.size(); ++i)
      if (readers_[i].number && !readers_[i].ended) going_on.push_back(*readers_[i].number);
  }
  for (const std::uint64_t reader : going_on) service_.cancel(reader);
  for (std::size_t i = 0; i < past.size(); ++i) answer_->add_past(i / n_, std::move(past[i]));
  answer_->past_is_there();
}

}  // namespace troupe
