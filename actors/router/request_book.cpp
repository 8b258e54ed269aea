#include "actors/router/request_book.h"

#include <algorithm>
#include <chrono>

#include "runtime/in_hand.h"

namespace troupe {

/// `request` says whose it is. Nobody finds one without a name again: it dies with the head.
void RequestBook::record(const PreparedRequest& request, const JournalRecord& record) {
  if (request.name) keeping_.note(record);
  journal_.append(record);
}

std::uint64_t RequestBook::add(PreparedRequest prepared, TimePoint now) {
  const std::uint64_t id = journal_.next_request();
  const SequenceId first{journal_.next_sequence()};
  const auto kept = std::make_shared<const PreparedRequest>(std::move(prepared));
  record(*kept, JournalAccepted{id, first, options_.unix_time.of(now), kept});
  Request& request = open(id, now);
  const RequestName* name = kept->name.get();
  if (name) request.mark = keeping_.mark();
  request.goes_on = name && !name->key.empty();
  if (name) names_.add(*name, id);
  return id;
}

/// What is kept of a request beside its journal, as it begins.
RequestBook::Request& RequestBook::open(std::uint64_t id, TimePoint now) {
  const Journal::Request& known = *journal_.request(id);
  Request& request = requests_[id];
  request.prepared = known.prepared;
  request.accepted = now;
  request.deadline = now + known.prepared->timeout;
  request.unfinished = known.prepared->n;
  deadlines_.emplace(request.deadline, id);
  room_.add(known.first_sequence, *known.prepared);
  const auto stops = std::make_shared<const StopStrings>(
      known.prepared->stop, known.prepared->include_stop_str_in_output);
  request.choices.resize(known.prepared->n);
  for (std::uint32_t i = 0; i < known.prepared->n; ++i) {
    request.choices[i].sequence = SequenceId{known.first_sequence.value + i};
    request.choices[i].request = id;
    request.choices[i].owner = known.prepared->owner();
    request.choices[i].priority = known.prepared->priority;
    request.choices[i].text = ChoiceText(options_.tokenizer, *known.prepared, stops);
  }
  return request;
}

void RequestBook::note_begun(Request& request, TimePoint now) {
  request.timing.queued_ms =
      std::chrono::duration<double, std::milli>(now - request.accepted).count();
}

void RequestBook::add_tokens(JournalTokens tokens) {
  room_.grow(tokens.sequence, tokens.tokens.size());
  const auto prepared = journal_.find(tokens.sequence)->prepared;
  record(*prepared, std::move(tokens));
}

void RequestBook::keep_prompt_logprobs(std::uint64_t id) {
  const Request& request = at(id);
  const auto& gathered = request.prompt_logprobs;
  constexpr std::size_t kARecord = 1u << 13;
  for (std::size_t i = journal_.request(id)->prompt_logprobs->size(); i < gathered.size();) {
    const std::size_t end = std::min(gathered.size(), i + kARecord);
    const auto at = gathered.begin();
    record(*request.prepared, JournalPrompt{id, static_cast<std::uint32_t>(i),
                                            {at + static_cast<std::ptrdiff_t>(i),
                                             at + static_cast<std::ptrdiff_t>(end)}});
    i = end;
  }
}

void RequestBook::keep_hidden(std::uint64_t id) {
  const Request& request = at(id);
  const std::size_t known = journal_.request(id)->hidden.size();
  for (const JournalRecord& of : hidden_records(id, known, request.hidden))
    record(*request.prepared, of);
}

void RequestBook::note_finished(Request& request, Choice& choice) {
  choice.finished = true;
  if (--request.unfinished == 0) ++over_;
  room_.finish(choice.sequence);
}

void RequestBook::finish_choice(Request& request, Choice& choice, FinishReason reason) {
  note_finished(request, choice);
  const std::size_t tokens = journal_.find(choice.sequence)->output.size();
  record(*request.prepared,
         JournalFinished{choice.sequence, reason, static_cast<std::uint32_t>(tokens)});
  if (request.unfinished > 0 || !request.prepared->name) return;
  request.end_mark = keeping_.mark();
  keeping_.want_news();
}

void RequestBook::begin_attempt(Choice& choice) {
  const Journal::Sequence& sequence = *journal_.find(choice.sequence);
  if (sequence.choice == 0 && sequence.output.empty()) {
    at(sequence.request).prompt_logprobs.clear();
    at(sequence.request).hidden.clear();
  }
  choice.run.started = choice.run.progressed = false;
  choice.run.urgent = sequence.prepared->streams;
  record(*sequence.prepared, JournalSubmitted{choice.sequence, sequence.attempt + 1});
  ++counts_.replayed;
}

void RequestBook::finish(std::uint64_t id, TimePoint now) {
  ++counts_.finished;
  end(id, std::nullopt, now);
}

void RequestBook::fail(std::uint64_t id, const Error& error, TimePoint now) {
  const bool cancelled = error.code == ErrorCode::kCancelled;
  ++(cancelled ? counts_.cancelled : counts_.failed);
  end(id, error, now);
}

void RequestBook::refuse(std::uint64_t id) {
  ++counts_.failed;
  close(id);
  forget(id);
}

/// Nothing of it runs any more.
void RequestBook::close(std::uint64_t id) {
  const auto found = requests_.find(id);
  const Request& request = found->second;
  deadlines_.erase({request.deadline, id});
  if (request.unfinished == 0) --over_;
  room_.remove(request.choices.front().sequence, *request.prepared);
  requests_.erase(found);
}

void RequestBook::end(std::uint64_t id, const std::optional<Error>& error, TimePoint now) {
  const auto prepared = at(id).prepared;
  const auto& name = prepared->name;
  close(id);
  if (!name || (error && error->code == ErrorCode::kCancelled)) return forget(id);
  record(*prepared, JournalEnded{id, options_.unix_time.of(now), error});
  keep_finished(id, now);
  if (error) names_.release_key(*name);
}

void RequestBook::keep_finished(std::uint64_t id, TimePoint ended) {
  finished_.add(id, journal_.request(id)->prepared->owner(), journal_.words_of(id), ended);
}

void RequestBook::forget(std::uint64_t id) {
  const Journal::Request* known = journal_.request(id);
  if (!known) return;
  const auto prepared = known->prepared;
  if (prepared->name) names_.remove(*prepared->name, id);
  finished_.remove(id);
  record(*prepared, JournalForgotten{id});
}

void RequestBook::forget_old(TimePoint now) {
  while (const auto oldest = finished_.next_to_go(now)) forget(*oldest);
}

// --- An earlier life of the head ----------------------------------------------------------------

void RequestBook::restore(Journal journal, TimePoint now) {
  journal_ = std::move(journal);
  std::vector<std::uint64_t> ended, unfinished;
  for (const auto& [id, known] : journal_.all()) {
    if (known.prepared->name) names_.add(*known.prepared->name, id);
    (known.ended ? ended : unfinished).push_back(id);
  }
  for (const std::uint64_t id : ended) {
    const Journal::Request& known = *journal_.request(id);
    // Nobody knows how long no head was there, nor whether the machine's clock is that of before:
    // an answer is as old as it was when the last one was written down.
    keep_finished(id, now - std::chrono::milliseconds(journal_.age_ms(known)));
    // Its client, which was cut off, is to hear of it, and not to crash the next heads.
    if (known.error && known.prepared->name && !known.given_up())
      names_.release_key(*known.prepared->name);
  }
  journal_.set_clock(options_.unix_time.of(now));
  for (const std::uint64_t id : unfinished) restore(id, now);
}

void RequestBook::restore(std::uint64_t id, TimePoint now) {
  const Journal::Request& known = *journal_.request(id);
  const auto prepared = known.prepared;
  const InHand hand(prepared->id());
  // What was cut off comes again from its beginning.
  if ((known.prompt_logprobs &&
       known.prompt_logprobs->size() + 1 < known.prepared->prompt.size()) ||
      known.hidden.size() < known.prepared->hidden_values())
    journal_.begin_again(id);
  Request& request = open(id, now);
  request.goes_on = true;
  const Journal::Request& begun = *journal_.request(id);
  request.hidden = begun.hidden;
  if (begun.prompt_logprobs)
    for (std::size_t i = 0; i < begun.prompt_logprobs->size(); ++i)
      request.prompt_logprobs.push_back(begun.prompt_logprobs->at(i));
  for (Choice& choice : request.choices) {
    const Journal::Sequence* sequence = journal_.find(choice.sequence);
    for (const TokenId token : sequence->output) (void)choice.text.feed(token);
    const bool complete =
        !sequence->output.empty() &&
        (choice.text.stopped() || sequence->output.size() == sequence->prepared->max_tokens ||
         std::ranges::count(sequence->prepared->stop_tokens, sequence->output.back()) > 0);
    if (sequence->finish == FinishReason::kNone && complete) {
      // That it ends there was not written any more: with its last token it is found again.
      journal_.take_back(choice.sequence);
      choice.text =
          ChoiceText(options_.tokenizer, *request.prepared,
                     std::make_shared<const StopStrings>(
                         request.prepared->stop, request.prepared->include_stop_str_in_output));
      for (const TokenId token : sequence->output) (void)choice.text.feed(token);
    }
    room_.grow(choice.sequence, sequence->output.size());
    request.first_event_sent = request.first_event_sent || !sequence->output.empty() ||
                               sequence->finish != FinishReason::kNone;
    choice.run.urgent = true;
    if (sequence->finish == FinishReason::kNone) {
      journal_.append(JournalSubmitted{choice.sequence, sequence->attempt + 1});
      ++counts_.replayed;
      continue;
    }
    note_finished(request, choice);
  }
}

NamedRequest RequestBook::describe(std::uint64_t id) const {
  const Journal::Request& known = *journal_.request(id);
  NamedRequest named{known.prepared->name, NamedRequest::State::kQueued, known.accepted_unix_ms};
  named.streams = known.prepared->streams;
  named.max_tokens = known.prepared->max_tokens;
  named.kept = known.ended || !keeping_.awaits(requests_.at(id).mark);
  if (known.ended)
    named.state = known.error ? NamedRequest::State::kFailed : NamedRequest::State::kFinished;
  else if (requests_.at(id).begun())
    named.state = NamedRequest::State::kRunning;
  return named;
}

RequestBook::Choice* RequestBook::find(SequenceId number) {
  const Journal::Sequence* sequence = journal_.find(number);
  if (!sequence) return nullptr;
  const auto request = requests_.find(sequence->request);
  return request == requests_.end() ? nullptr : &request->second.choices[sequence->choice];
}

const std::pair<TimePoint, std::uint64_t>* RequestBook::next_deadline() const {
  return deadlines_.empty() ? nullptr : &*deadlines_.begin();
}

RequestCounts RequestBook::counts(std::size_t computing) const {
  RequestCounts counts = counts_;
  counts.running = computing;
  counts.waiting = requests_.size() - over_ - counts.running;
  return counts;
}

std::vector<RequestSummary> RequestBook::list(std::size_t count_max) const {
  std::vector<RequestSummary> list;
  for (const auto& [id, request] : requests_) {
    if (list.size() == count_max) break;
    RequestSummary summary{.id = id,
                           .running = false,
                           .replica = {},
                           .prompt_tokens = request.prepared->prompt.size(),
                           .accepted = request.accepted};
    for (const Choice& choice : request.choices) {
      if (!summary.replica) summary.replica = choice.run.replica;
      summary.running = summary.running || (choice.run.replica && choice.run.started);
      const Journal::Sequence& sequence = *journal_.find(choice.sequence);
      summary.tokens += sequence.output.size();
      summary.replays += sequence.attempt;
    }
    list.push_back(summary);
  }
  return list;
}

std::string RequestBook::violation() const {
  std::size_t choices = 0, over = 0;
  for (const auto& [id, request] : requests_) {
    const std::string name = "request " + std::to_string(id);
    if (!deadlines_.contains({request.deadline, id})) return name + " has no deadline";
    if (request.choices.size() != request.prepared->n) return name + " lacks a choice";
    std::size_t unfinished = 0;
    for (const Choice& choice : request.choices) {
      unfinished += choice.finished ? 0 : 1;
      const Journal::Sequence* sequence = journal_.find(choice.sequence);
      if (!sequence || sequence->request != id) return name + " is not in the journal";
    }
    if (unfinished != request.unfinished) return name + " miscounts its unfinished choices";
    over += unfinished == 0 ? 1 : 0;
    if (unfinished == 0 && !keeping_.awaits(request.mark) && !keeping_.awaits(request.end_mark))
      return name + " is over, and still there";
    choices += request.choices.size();
  }
  if (over != over_) return "the requests that are over are miscounted";
  if (deadlines_.size() != requests_.size()) return "a deadline has no request";
  if (journal_.requests() != requests_.size() + finished_.size())
    return "the journal holds what no request has";
  return room_.violation();
}

}  // namespace troupe
