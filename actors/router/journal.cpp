#include "actors/router/journal.h"

#include <algorithm>
#include <cassert>
#include <utility>

#include "actors/router/journal_words.h"
#include "runtime/overloaded.h"
#include "runtime/unix_time.h"

namespace troupe {
namespace {

/// Tokens of one record that tells a request again, so that it stays far below its bound.
constexpr std::size_t kTokensARecord = 1u << 13;
/// The same of numbers of hidden states.
constexpr std::size_t kHiddenARecord = 1u << 16;

/// Where a request asked for log-probabilities: as SamplingParams::top_logprobs.
std::optional<KeptTokens> keep(std::int32_t alternatives) {
  if (alternatives < 0) return std::nullopt;
  return KeptTokens(alternatives);
}

/// Told again, and no other request that has its number by now.
bool same(const Journal::Request& known, const JournalAccepted& record) {
  const RequestName* const name = known.prepared->name.get();
  const RequestName* const other = record.prepared->name.get();
  return name && other && name->id == other->id && name->index == other->index &&
         known.first_sequence == record.first_sequence && known.prepared->n == record.prepared->n;
}

std::vector<TokenOutput> outputs_of(const KeptTokens& kept, std::size_t begin, std::size_t end) {
  std::vector<TokenOutput> outputs;
  for (std::size_t i = begin; i < end; ++i) outputs.push_back(kept.at(i));
  return outputs;
}

}  // namespace

std::vector<JournalRecord> hidden_records(std::uint64_t request, std::size_t from,
                                          const std::vector<float>& hidden) {
  std::vector<JournalRecord> records;
  for (std::size_t i = from; i < hidden.size(); i += kHiddenARecord) {
    const auto first = hidden.begin() + static_cast<std::ptrdiff_t>(i);
    const std::size_t count = std::min(kHiddenARecord, hidden.size() - i);
    records.push_back(JournalHidden{request, static_cast<std::uint32_t>(i),
                                    {first, first + static_cast<std::ptrdiff_t>(count)}});
  }
  return records;
}

void Journal::append(const JournalRecord& record) {
  assert(fits(record));
  std::visit([this](const auto& r) { apply(r); }, record);
}

bool Journal::fits(const JournalRecord& record) const {
  return std::visit(
      Overloaded{
          [&](const JournalAccepted& r) {
            if (!r.prepared || r.prepared->n == 0) return false;
            for (std::uint32_t choice = 0; choice < r.prepared->n; ++choice)
              if (const auto* other = find(SequenceId{r.first_sequence.value + choice});
                  other && other->request != r.request)
                return false;
            return true;
          },
          [&](const JournalSubmitted& r) { return find(r.sequence) != nullptr; },
          [&](const JournalPrompt& r) {
            const Request* known = request(r.request);
            return known && known->prompt_logprobs && r.index <= known->prompt_logprobs->size() &&
                   r.index + r.logprobs.size() < known->prepared->prompt.size();
          },
          [&](const JournalHidden& r) {
            const Request* known = request(r.request);
            return known && r.index <= known->hidden.size() &&
                   r.index + r.values.size() <= known->prepared->hidden_values();
          },
          [&](const JournalTokens& r) {
            const Sequence* known = find(r.sequence);
            return known && known->finish == FinishReason::kNone &&
                   r.index <= known->output.size() &&
                   r.index + r.tokens.size() <= known->prepared->max_tokens && !denies(r);
          },
          [&](const JournalFinished& r) {
            const Sequence* known = find(r.sequence);
            return known && r.reason != FinishReason::kNone && r.tokens == known->output.size() &&
                   request(known->request)->hidden.size() == known->prepared->hidden_values();
          },
          [&](const JournalEnded& r) {
            return request(r.request) && (r.error || finished(*request(r.request)));
          },
          [&](const JournalForgotten& r) { return request(r.request) != nullptr; },
          [&](const JournalCrashes& r) { return request(r.request) != nullptr; },
      },
      record);
}

bool Journal::denies(const JournalTokens& record) const {
  const Sequence* known = find(record.sequence);
  if (!known) return false;
  for (std::size_t i = record.index; i - record.index < record.tokens.size(); ++i)
    if (i < known->output.size() && known->output[i] != record.tokens[i - record.index].token)
      return true;
  return false;
}

void Journal::reserve(std::uint64_t next_request, std::uint64_t next_sequence) {
  next_request_ = std::max(next_request_, next_request);
  next_sequence_ = std::max(next_sequence_, next_sequence);
}

bool Journal::finished(const Request& request) const {
  for (std::uint32_t choice = 0; choice < request.prepared->n; ++choice)
    if (find(SequenceId{request.first_sequence.value + choice})->finish == FinishReason::kNone)
      return false;
  return true;
}

std::int64_t Journal::age_ms(const Request& ended) const {
  if (ended.ended_unix_ms == 0) return 0;
  return last_ends_unix_ms_.at(ended.clock) - ended.ended_unix_ms;
}

void Journal::set_clock(std::int64_t unix_ms) {
  for (auto& [id, request] : requests_) {
    if (!request.ended) continue;
    request.ended_unix_ms = std::clamp(unix_ms - age_ms(request), std::int64_t{0}, kUnixMsMax);
    request.clock = 0;
  }
  last_ends_unix_ms_ = {unix_ms};
}

void Journal::begin_again(std::uint64_t id) {
  const Request begun = requests_.at(id);
  forget(id);
  append(JournalAccepted{id, begun.first_sequence, begun.accepted_unix_ms, begun.prepared});
  append(JournalCrashes{id, begun.crashes, begun.crash_term});
}

void Journal::take_back(SequenceId number) {
  Sequence& sequence = sequences_.at(number);
  sequence.output.pop_back();
  if (sequence.logprobs) sequence.logprobs->take_back();
  words_ -= token_words(*sequence.prepared);
}

const Journal::Sequence* Journal::find(SequenceId sequence) const {
  const auto found = sequences_.find(sequence);
  return found == sequences_.end() ? nullptr : &found->second;
}

const Journal::Request* Journal::request(std::uint64_t id) const {
  const auto found = requests_.find(id);
  return found == requests_.end() ? nullptr : &found->second;
}

std::size_t Journal::words_of(std::uint64_t id) const {
  const Request* known = request(id);
  if (!known) return 0;
  std::size_t words = prompt_words(*known->prepared);
  for (std::uint32_t choice = 0; choice < known->prepared->n; ++choice)
    words += find(SequenceId{known->first_sequence.value + choice})->output.size() *
             token_words(*known->prepared);
  return words;
}

bool Journal::tell(Place& place, std::uint64_t until, std::size_t words_max,
                   std::vector<JournalRecord>& out) const {
  for (std::size_t words = 0;;) {
    auto next = requests_.find(place.request);
    if (!place.within || next == requests_.end()) {
      if (words >= words_max) return false;
      next = requests_.upper_bound(place.request);
      if (next == requests_.end() || next->first > until) return true;
      place = {next->first, next->second.prepared->name != nullptr, 0, 0};
      if (!place.within) continue;
      tell_beginning(next->first, out);
      words += prompt_words(*next->second.prepared);
    }
    const Request& known = next->second;
    for (; place.choice < known.prepared->n; ++place.choice, place.token = 0)
      if (!tell_choice(place, known, words, words_max, out)) return false;
    if (known.ended)
      out.push_back(JournalEnded{place.request, known.ended_unix_ms, known.error});
    // Behind its tokens and its end, which would say that all went well since.
    if (known.crashes > 0)
      out.push_back(JournalCrashes{place.request, known.crashes, known.crash_term});
    place.within = false;
  }
}

void Journal::tell_beginning(std::uint64_t id, std::vector<JournalRecord>& out) const {
  const Request& known = requests_.at(id);
  out.push_back(JournalAccepted{id, known.first_sequence, known.accepted_unix_ms, known.prepared});
  for (JournalRecord& record : hidden_records(id, 0, known.hidden))
    out.push_back(std::move(record));
  if (!known.prompt_logprobs) return;
  const std::size_t all = known.prompt_logprobs->size();
  for (std::size_t i = 0; i < all; i += kTokensARecord)
    out.push_back(
        JournalPrompt{id, static_cast<std::uint32_t>(i),
                      outputs_of(*known.prompt_logprobs, i, std::min(all, i + kTokensARecord))});
}

/// False: the words are used up before its end.
bool Journal::tell_choice(Place& place, const Request& known, std::size_t& words,
                          std::size_t words_max, std::vector<JournalRecord>& out) const {
  const SequenceId number{known.first_sequence.value + place.choice};
  const Sequence& sequence = *find(number);
  if (place.token == 0 && sequence.attempt > 0)
    out.push_back(JournalSubmitted{number, sequence.attempt});
  while (place.token < sequence.output.size()) {
    if (words >= words_max) return false;
    const std::size_t end = std::min(sequence.output.size(), place.token + kTokensARecord);
    JournalTokens tokens{number, static_cast<std::uint32_t>(place.token), {}};
    if (sequence.logprobs)
      tokens.tokens = outputs_of(*sequence.logprobs, place.token, end);
    else
      for (std::size_t i = place.token; i < end; ++i)
        tokens.tokens.push_back({sequence.output[i], 0, {}});
    words += tokens.tokens.size() * token_words(*sequence.prepared);
    out.push_back(std::move(tokens));
    place.token = end;
  }
  if (sequence.finish != FinishReason::kNone)
    out.push_back(JournalFinished{number, sequence.finish,
                                  static_cast<std::uint32_t>(sequence.output.size())});
  return true;
}

void Journal::apply(const JournalAccepted& record) {
  const PreparedRequest& prepared = *record.prepared;
  reserve(record.request + 1, record.first_sequence.value + prepared.n);
  if (const Request* known = request(record.request); known && same(*known, record)) return;
  forget(record.request);
  requests_.emplace(record.request,
                    Request{record.first_sequence, record.prepared, record.accepted_unix_ms,
                            keep(prepared.prompt_logprobs), {}, false, 0, 0, std::nullopt, 0, 0});
  for (std::uint32_t choice = 0; choice < prepared.n; ++choice)
    sequences_.insert_or_assign(
        SequenceId{record.first_sequence.value + choice},
        Sequence{record.request, choice, 0, record.prepared, {},
                 keep(prepared.sampling.top_logprobs), FinishReason::kNone});
  words_ += prompt_words(prepared);
}

void Journal::apply(const JournalSubmitted& record) {
  sequences_.at(record.sequence).attempt = record.attempt;
}

void Journal::apply(const JournalPrompt& record) {
  KeptTokens& kept = *requests_.at(record.request).prompt_logprobs;
  for (std::size_t i = kept.size() - record.index; i < record.logprobs.size(); ++i)
    kept.add(record.logprobs[i]);
}

void Journal::apply(const JournalHidden& record) {
  std::vector<float>& hidden = requests_.at(record.request).hidden;
  for (std::size_t i = hidden.size() - record.index; i < record.values.size(); ++i)
    hidden.push_back(record.values[i]);
}

void Journal::apply(const JournalTokens& record) {
  Sequence& sequence = sequences_.at(record.sequence);
  const std::size_t before = sequence.output.size();
  for (std::size_t i = before - record.index; i < record.tokens.size(); ++i) {
    sequence.output.push_back(record.tokens[i].token);
    if (sequence.logprobs) sequence.logprobs->add(record.tokens[i]);
  }
  words_ += (sequence.output.size() - before) * token_words(*sequence.prepared);
  if (sequence.output.size() > before) requests_.at(sequence.request).crashes = 0;
}

void Journal::apply(const JournalFinished& record) {
  sequences_.at(record.sequence).finish = record.reason;
}

void Journal::apply(const JournalEnded& record) {
  Request& request = requests_.at(record.request);
  if (!request.ended && request.crashes < kHeadCrashesMax) request.crashes = 0;
  request.ended = true;
  request.ended_unix_ms = record.ended_unix_ms;
  request.clock = last_ends_unix_ms_.size() - 1;
  last_ends_unix_ms_.back() = std::max(last_ends_unix_ms_.back(), record.ended_unix_ms);
  request.error = record.error;
}

void Journal::apply(const JournalForgotten& record) { forget(record.request); }

void Journal::apply(const JournalCrashes& record) {
  Request& request = requests_.at(record.request);
  // Told again, or before a newer token; none are nobody's.
  if (record.crashes > 0 && record.term <= request.crash_term) return;
  request.crashes = record.crashes;
  request.crash_term = std::max(request.crash_term, record.term);
}

void Journal::forget(std::uint64_t id) {
  const auto found = requests_.find(id);
  if (found == requests_.end()) return;
  words_ -= words_of(id);
  for (std::uint32_t choice = 0; choice < found->second.prepared->n; ++choice)
    sequences_.erase(SequenceId{found->second.first_sequence.value + choice});
  requests_.erase(found);
}

}  // namespace troupe
