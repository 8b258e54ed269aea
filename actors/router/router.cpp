#include "actors/router/router.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double milliseconds(Duration duration) { return 1000.0 * seconds(duration); }

Error too_many() { return resource_exhausted("Too many requests are waiting; try again later."); }

/// Whether the same sequence may do better elsewhere, or later.
bool passing(const Error& error) {
  return error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kDeadlineExceeded ||
         error.code == ErrorCode::kResourceExhausted;
}

bool ends_attempt(const SequenceEvent& event) {
  return event.error || event.finish != FinishReason::kNone;
}

}  // namespace

namespace {

/// Prompt tokens of all choices of one request: 16 MiB of a control session's unsent bytes.
constexpr std::size_t kPromptCopiesTokensMax = 4u << 20;
static_assert(kPromptCopiesTokensMax * sizeof(TokenId) * 4 <= limits::kControlUnsentBytesMax);

}  // namespace

Router::Router(Options options)
    : options_(std::move(options)),
      not_ready_why_("The cluster is not ready yet; try again later.") {}

// --- Requests come ------------------------------------------------------------------------------

Result<std::uint64_t> Router::submit(PreparedRequest prepared, std::uint64_t random_seed,
                                     TimePoint now, RouterActions& actions) {
  assert(!prepared.prompt.empty() && prepared.n >= 1);
  if (replicas_.empty() && !waits_) return unavailable(not_ready_why_);
  if (requests_.size() >= limits::kRequestsMax ||
      journal_.sequences() + prepared.n > limits::kSequencesMax)
    return too_many();
  // Each choice carries the prompt to its replica: one request must not fill the control lane.
  if (prepared.prompt.size() * prepared.n > kPromptCopiesTokensMax)
    return invalid_argument("n: " + std::to_string(prepared.n) + " choices of a prompt of " +
                            std::to_string(prepared.prompt.size()) +
                            " tokens are too much for one request; send several.");
  if (!make_room(prepared.prompt.size(), now, actions)) return too_many();

  if (!prepared.seed) prepared.seed = random_seed;
  prepared.sampling.seed = *prepared.seed;
  const std::uint64_t id = next_request_++;
  Request& request = requests_[id];
  request.prepared = std::make_shared<const PreparedRequest>(std::move(prepared));
  request.accepted = now;
  request.deadline = now + request.prepared->timeout;
  request.unfinished = request.prepared->n;
  deadlines_.emplace(request.deadline, id);
  journal_.append(JournalAccepted{id, SequenceId{next_sequence_}, request.prepared});

  const auto stops = std::make_shared<const StopStrings>(request.prepared->stop);
  request.choices.resize(request.prepared->n);
  for (Choice& choice : request.choices) {
    choice.sequence = SequenceId{next_sequence_++};
    if (options_.tokenizer) {
      choice.decoder.emplace(options_.tokenizer,
                             StreamDecoder::Options{true, request.prepared->keep_special});
      choice.stops.emplace(stops);
    }
    wait(choice);
  }
  actions.observations.push_back({RequestObservation::Kind::kPromptTokens,
                                  static_cast<double>(request.prepared->prompt.size())});
  close_turn(now, actions);
  return id;
}

/// How many tokens too many the journal would hold with `more`.
std::size_t Router::excess_tokens(std::size_t more) const {
  const std::size_t all = journal_.tokens() + more;
  return all > options_.journal_tokens_max ? all - options_.journal_tokens_max : 0;
}

/// Makes room for a newcomer at the expense of those who wait; false, and nothing done, if that is
/// not enough.
bool Router::make_room(std::size_t tokens, TimePoint now, RouterActions& actions) {
  const std::size_t excess = excess_tokens(tokens);
  if (excess == 0) return true;
  std::size_t waiting = 0;
  for (const auto& [id, request] : requests_)
    if (request.timing.queued_ms < 0) waiting += request.prepared->prompt.size();
  if (waiting < excess) return false;
  refuse_waiting(tokens, now, actions);
  return true;
}

/// Refuses requests that no replica has begun with, the oldest first, until there is room.
void Router::refuse_waiting(std::size_t tokens, TimePoint now, RouterActions& actions) {
  for (auto it = requests_.begin(); it != requests_.end() && excess_tokens(tokens) > 0;) {
    const auto request = it++;
    if (request->second.timing.queued_ms < 0) fail(request->first, too_many(), now, actions);
  }
}

// --- Replicas answer ----------------------------------------------------------------------------

void Router::on(const Envelope& envelope, TimePoint now, RouterActions& actions) {
  if (const auto* events = std::get_if<SequenceEvents>(envelope.message.get())) {
    for (const SequenceEvent& event : events->events) on_event(envelope.from, event, now, actions);
  } else if (const auto* lost = std::get_if<Undeliverable>(envelope.message.get())) {
    on_undeliverable(*lost, now, actions);
  }
  close_turn(now, actions);
}

Router::Choice* Router::current(const Address& from, const SequenceEvent& event,
                                RouterActions& actions) {
  const Journal::Sequence* sequence = journal_.find(event.sequence);
  if (sequence && sequence->attempt == event.attempt) {
    Choice& choice = requests_.at(sequence->request).choices[sequence->choice];
    const auto replica = choice.replica ? replicas_.find(*choice.replica) : replicas_.end();
    if (replica != replicas_.end() && replica->second.address == from) return &choice;
  }
  // Somebody works for nobody, perhaps on a request that was cancelled before it arrived there.
  if (!ends_attempt(event)) actions.send(from, Cancel{event.sequence, event.attempt});
  return nullptr;
}

void Router::on_event(const Address& from, const SequenceEvent& event, TimePoint now,
                      RouterActions& actions) {
  Choice* choice = current(from, event, actions);
  if (!choice) return;
  const Journal::Sequence& sequence = *journal_.find(event.sequence);
  const std::uint64_t id = sequence.request;
  Request& request = requests_.at(id);
  if (event.error && passing(*event.error)) {
    choice->shunned.insert(*choice->replica);
    if (event.error->code == ErrorCode::kResourceExhausted)
      choice->no_room_at.insert(*choice->replica);
    return retry(id, *choice, *event.error, now, actions);
  }
  if (event.index < sequence.output.size()) return;  // A duplicate.
  if (event.index > sequence.output.size())
    return retry(id, *choice, internal_error("Tokens of a replica were lost on their way."), now,
                 actions);
  if (event.started || !event.tokens.empty()) note_start(request, *choice, now, actions);
  accept_prompt_logprobs(request, event);
  accept_tokens(request, *choice, event, now, actions);
  if (choice->finished) release(*choice, event.finish == FinishReason::kNone, actions);
  flush(id, now, actions);
  if (event.error && requests_.contains(id)) fail(id, *event.error, now, actions);
  if (excess_tokens(0) > 0) refuse_waiting(0, now, actions);
}

void Router::note_start(Request& request, Choice& choice, TimePoint now, RouterActions& actions) {
  if (!std::exchange(choice.started, true) && choice.replica)
    replicas_.at(*choice.replica).unstarted_tokens -= choice.submitted_tokens;
  if (request.timing.queued_ms >= 0) return;
  request.timing.queued_ms = milliseconds(now - request.accepted);
  ++running_;
  actions.observations.push_back(
      {RequestObservation::Kind::kQueueTime, seconds(now - request.accepted)});
}

/// Whatever made it fail before, it is not what it was suspected of.
void Router::note_progress(Choice& choice) {
  choice.progressed = true;
  choice.failures = choice.strikes = choice.strikes_alone = 0;
  choice.shunned.clear();
  choice.no_room_at.clear();
  if (trial_ && trial_->sequence == choice.sequence) trial_.reset();
}

void Router::accept_prompt_logprobs(Request& request, const SequenceEvent& event) {
  auto& gathered = request.prompt_logprobs;
  const std::size_t wanted =
      request.prepared->prompt_logprobs >= 0 ? request.prepared->prompt.size() - 1 : 0;
  if (request.first_event_sent || event.prompt_index != gathered.size() + 1) return;  // Known.
  if (gathered.size() + event.prompt_logprobs.size() > wanted) return;
  gathered.insert(gathered.end(), event.prompt_logprobs.begin(), event.prompt_logprobs.end());
}

void Router::accept_tokens(Request& request, Choice& choice, const SequenceEvent& event,
                           TimePoint now, RouterActions& actions) {
  JournalTokens record{event.sequence, event.index, {}};
  for (const TokenOutput& token : event.tokens) {
    if (event.index + record.tokens.size() >= request.prepared->max_tokens) break;
    record.tokens.push_back(token.token);
    choice.pending.tokens.push_back(token);
    choice.dirty = true;
    const bool stop_token =
        event.finish == FinishReason::kStop && record.tokens.size() == event.tokens.size();
    if (choice.decoder && !stop_token) add_text(choice, choice.decoder->feed(token.token));
    if (choice.stops && choice.stops->matched()) break;
  }
  const std::size_t count = record.tokens.size();
  if (count > 0) {
    using Kind = RequestObservation::Kind;
    journal_.append(record);
    note_progress(choice);
    actions.observations.push_back({Kind::kGenerationTokens, static_cast<double>(count)});
    if (request.timing.first_token_ms < 0) {
      request.timing.first_token_ms = milliseconds(now - request.accepted);
      actions.observations.push_back({Kind::kFirstToken, seconds(now - request.accepted)});
    }
    if (choice.last_token)
      actions.observations.push_back(
          {Kind::kInterToken, seconds(now - *choice.last_token) / static_cast<double>(count)});
    choice.last_token = now;
  }
  if (choice.stops && choice.stops->matched()) {
    finish_choice(request, choice, FinishReason::kStop);
  } else if (event.finish != FinishReason::kNone) {
    finish_choice(request, choice, event.finish);
  } else if (count < event.tokens.size()) {
    finish_choice(request, choice, FinishReason::kLength);
  }
}

void Router::add_text(Choice& choice, const std::string& text) {
  choice.pending.text += choice.stops->feed(text);
}

void Router::finish_choice(Request& request, Choice& choice, FinishReason reason) {
  if (choice.decoder && !choice.stops->matched()) {
    add_text(choice, choice.decoder->finish());
    if (choice.stops->matched()) {
      reason = FinishReason::kStop;
    } else {
      choice.pending.text += choice.stops->finish();
    }
  }
  choice.pending.finish = reason;
  choice.dirty = true;
  choice.finished = true;
  --request.unfinished;
}

// --- News go to the client ----------------------------------------------------------------------

void Router::flush(std::uint64_t id, TimePoint now, RouterActions& actions) {
  Request& request = requests_.at(id);
  const PreparedRequest& prepared = *request.prepared;
  // The first event carries the prompt's log-probabilities: the others wait for them.
  const bool held = prepared.prompt_logprobs >= 0 && !request.first_event_sent &&
                    request.prompt_logprobs.size() + 1 < prepared.prompt.size();
  if (held && !request.choices[0].finished) return;
  const auto dirty = [](const Choice& choice) { return choice.dirty; };
  auto& choices = request.choices;
  for (auto choice = std::find_if(choices.begin(), choices.end(), dirty);
       choice != choices.end();) {
    GenerationEvent event = std::exchange(choice->pending, {});
    choice->dirty = false;
    event.choice = static_cast<std::uint32_t>(choice - choices.begin());
    choice = std::find_if(choice, choices.end(), dirty);
    event.request_done = request.unfinished == 0 && choice == choices.end();
    deliver(id, request, std::move(event), now, actions);
  }
  if (request.unfinished > 0) return;
  actions.observations.push_back(
      {RequestObservation::Kind::kEndToEnd, seconds(now - request.accepted)});
  ++finished_;
  end(id);
}

void Router::deliver(std::uint64_t id, Request& request, GenerationEvent event, TimePoint now,
                     RouterActions& actions) {
  if (!std::exchange(request.first_event_sent, true)) {
    event.prompt_tokens = request.prepared->prompt;
    event.prompt_logprobs = std::exchange(request.prompt_logprobs, {});
  }
  if (event.request_done) request.timing.total_ms = milliseconds(now - request.accepted);
  event.timing = request.timing;
  actions.deliveries.push_back({id, std::move(event)});
}

void Router::fail(std::uint64_t id, Error error, TimePoint now, RouterActions& actions) {
  Request& request = requests_.at(id);
  for (Choice& choice : request.choices) {
    const bool wanted = !choice.finished;
    release(choice, wanted, actions);
    wait_no_more(choice);
  }
  if (error.code == ErrorCode::kCancelled) {
    ++cancelled_;
  } else {
    ++failed_;
  }
  GenerationEvent event;
  event.request_done = true;
  event.error = std::move(error);
  deliver(id, request, std::move(event), now, actions);
  end(id);
}

void Router::end(std::uint64_t id) {
  const auto found = requests_.find(id);
  deadlines_.erase({found->second.deadline, id});
  if (found->second.timing.queued_ms >= 0) --running_;
  requests_.erase(found);
  journal_.append(JournalEnded{id});
}

void Router::cancel(std::uint64_t request, TimePoint now, RouterActions& actions) {
  if (requests_.contains(request))
    fail(request, cancelled("The client cancelled the request."), now, actions);
  close_turn(now, actions);
}

// --- Time passes --------------------------------------------------------------------------------

void Router::on_wake(TimePoint now, RouterActions& actions) {
  while (!deadlines_.empty() && deadlines_.begin()->first <= now) {
    const std::uint64_t id = deadlines_.begin()->second;
    const double allowed_s = seconds(requests_.at(id).prepared->timeout);
    fail(id,
         deadline_exceeded("The request was not done within " +
                           std::to_string(static_cast<std::int64_t>(allowed_s)) +
                           " s; ask for less, or raise --request-timeout."),
         now, actions);
  }
  close_turn(now, actions);
}

RequestCounts Router::counts() const {
  RequestCounts counts;
  counts.running = running_;
  counts.waiting = requests_.size() - running_;
  counts.finished = finished_;
  counts.failed = failed_;
  counts.cancelled = cancelled_;
  counts.replayed = replayed_;
  return counts;
}

std::vector<RequestSummary> Router::list(std::size_t count_max) const {
  std::vector<RequestSummary> list;
  for (const auto& [id, request] : requests_) {
    if (list.size() == count_max) break;
    RequestSummary summary{.id = id,
                           .running = request.timing.queued_ms >= 0,
                           .replica = {},
                           .prompt_tokens = request.prepared->prompt.size(),
                           .accepted = request.accepted};
    for (const Choice& choice : request.choices) {
      if (!summary.replica) summary.replica = choice.replica;
      const Journal::Sequence& sequence = *journal_.find(choice.sequence);
      summary.tokens += sequence.output.size();
      summary.replays += sequence.attempt;
    }
    list.push_back(summary);
  }
  return list;
}

}  // namespace troupe
