#include "actors/router/router.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// Prompt tokens of all choices of one request: 16 MiB of a control session's unsent bytes.
constexpr std::size_t kPromptCopiesTokensMax = 4u << 20;
static_assert(kPromptCopiesTokensMax * sizeof(TokenId) * 4 <= limits::kControlUnsentBytesMax);

using Observed = RequestObservation::Kind;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double milliseconds(Duration duration) { return 1000.0 * seconds(duration); }

Error too_many() { return resource_exhausted("Too many requests are waiting; try again later."); }

bool ends_attempt(const SequenceEvent& event) {
  return event.error || event.finish != FinishReason::kNone;
}

}  // namespace

Router::Router(Options options)
    : options_(std::move(options)),
      book_(options_.journal_tokens_max),
      placing_(options_.prefix_caching) {}

// --- Requests come ------------------------------------------------------------------------------

void Router::on(SubmitRequest submit, TimePoint now, Effects& effects) {
  auto number = accept(std::move(submit.request), submit.random_seed, now);
  effects.add(RequestAccepted{submit.ticket, number});
  if (!number.ok()) return;
  const Request& request = book_.at(*number);
  effects.add(RequestObservation{Observed::kPromptTokens,
                                 static_cast<double>(request.prepared->prompt.size())});
}

Result<std::uint64_t> Router::accept(PreparedRequest prepared, std::uint64_t random_seed,
                                     TimePoint now) {
  assert(!prepared.prompt.empty() && prepared.n >= 1);
  if (!placing_.any_replica() && !admission_.waits) return unavailable(admission_.why);
  if (book_.all().size() >= limits::kRequestsMax ||
      journal().sequences() + prepared.n > limits::kSequencesMax)
    return too_many();
  // Each choice carries the prompt to its replica: one request must not fill the control lane.
  if (prepared.prompt.size() * prepared.n > kPromptCopiesTokensMax)
    return invalid_argument("n: " + std::to_string(prepared.n) + " choices of a prompt of " +
                            std::to_string(prepared.prompt.size()) +
                            " tokens are too much for one request; send several.");
  if (!book_.room().takes(prepared)) return too_many();

  if (!prepared.seed) prepared.seed = random_seed;
  prepared.sampling.seed = *prepared.seed;
  const std::uint64_t id = book_.add(std::move(prepared), options_.tokenizer, now);
  for (const Choice& choice : book_.at(id).choices) placing_.wait(choice);
  return id;
}

/// Those for whom there is no room pause; those for whom there is again go on.
void Router::share_room(Effects& effects) {
  while (const auto paused = book_.room().pause_one())
    placing_.park(book_, book_.choice_of(*paused), effects);
  while (const auto resumed = book_.room().resume_one()) placing_.unpark(book_.choice_of(*resumed));
}

void Router::on(CancelRequest cancel, TimePoint now, Effects& effects) {
  if (book_.contains(cancel.request))
    fail(cancel.request, cancelled("The client cancelled the request."), now, effects);
}

// --- Replicas answer ----------------------------------------------------------------------------

void Router::on(const SequenceEvents& events, const Envelope& envelope, TimePoint now,
                Effects& effects) {
  for (const SequenceEvent& event : events.events) on_event(envelope.from, event, now, effects);
}

void Router::on(const Undeliverable& lost, const Envelope&, TimePoint now, Effects& effects) {
  placing_.on_undeliverable(book_, lost, now, effects);
}

Router::Choice* Router::current(const Address& from, const SequenceEvent& event, Effects& effects) {
  const Journal::Sequence* sequence = journal().find(event.sequence);
  if (sequence && sequence->attempt == event.attempt) {
    Choice& choice = book_.choice_of(event.sequence);
    if (placing_.runs_at(choice, from)) return &choice;
  }
  // A replica works on what nobody wants, such as a request that was cancelled on its way there.
  if (!ends_attempt(event))
    effects.send(Ref<ReplicaInbox>(from.node, from.incarnation, from.actor.index),
                 Cancel{event.sequence, event.attempt});
  return nullptr;
}

void Router::on_event(const Address& from, const SequenceEvent& event, TimePoint now,
                      Effects& effects) {
  Choice* choice = current(from, event, effects);
  if (!choice) return;
  const Journal::Sequence& sequence = *journal().find(event.sequence);
  const std::uint64_t id = sequence.request;
  Request& request = book_.at(id);
  if (event.error && passing(event.error->code)) {
    choice->run.shunned.insert(*choice->run.replica);
    if (event.error->code == ErrorCode::kResourceExhausted)
      choice->run.no_room_at.insert(*choice->run.replica);
    return retry(id, *choice, *event.error, now, effects);
  }
  if (event.index < sequence.output.size()) return;  // A duplicate.
  if (event.index > sequence.output.size())
    return retry(id, *choice, internal_error("Tokens of a replica were lost on their way."), now,
                 effects);
  if (event.started && event.cached_tokens >= 0) note_prefix(request, sequence, event, effects);
  if (event.started || !event.tokens.empty()) note_start(request, *choice, now, effects);
  accept_prompt_logprobs(request, event);
  accept_tokens(request, *choice, event, now, effects);
  if (choice->finished)
    placing_.release(journal(), *choice, event.finish == FinishReason::kNone, effects);
  flush(id, now, effects);
  if (event.error && book_.contains(id)) fail(id, *event.error, now, effects);
}

void Router::retry(std::uint64_t id, Choice& choice, const Error& why, TimePoint now,
                   Effects& effects) {
  if (!placing_.retry(book_, choice, why, now, effects)) fail(id, why, now, effects);
}

/// What a client is told is of the prompt, as its first choice began.
void Router::note_prefix(Request& request, const Journal::Sequence& sequence,
                         const SequenceEvent& event, Effects& effects) {
  const std::size_t prompt = request.prepared->prompt.size();
  const auto cached = static_cast<std::size_t>(event.cached_tokens);
  effects.add(RequestObservation{Observed::kPrefixQueries,
                                 static_cast<double>(prompt + sequence.output.size())});
  effects.add(RequestObservation{Observed::kPrefixHits, static_cast<double>(cached)});
  if (!request.begun())
    request.cached_tokens = static_cast<std::uint32_t>(std::min(cached, prompt));
}

void Router::note_start(Request& request, Choice& choice, TimePoint now, Effects& effects) {
  placing_.note_start(choice);
  if (request.begun()) return;
  book_.note_begun(request, now);
  effects.add(RequestObservation{Observed::kQueueTime, seconds(now - request.accepted)});
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
                           TimePoint now, Effects& effects) {
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
    book_.add_tokens(record);
    placing_.note_progress(choice);
    measure_tokens(request, choice, count, now, effects);
  }
  if (choice.stops && choice.stops->matched()) {
    finish_choice(request, choice, FinishReason::kStop);
  } else if (event.finish != FinishReason::kNone) {
    finish_choice(request, choice, event.finish);
  } else if (count < event.tokens.size()) {
    finish_choice(request, choice, FinishReason::kLength);
  }
}

void Router::measure_tokens(Request& request, Choice& choice, std::size_t count, TimePoint now,
                            Effects& effects) {
  const auto tokens = static_cast<double>(count);
  effects.add(RequestObservation{Observed::kGenerationTokens, tokens});
  if (request.timing.first_token_ms < 0) {
    request.timing.first_token_ms = milliseconds(now - request.accepted);
    effects.add(RequestObservation{Observed::kFirstToken, seconds(now - request.accepted)});
  }
  if (choice.last_token)
    effects.add(
        RequestObservation{Observed::kInterToken, seconds(now - *choice.last_token) / tokens});
  choice.last_token = now;
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
  book_.finish_choice(request, choice);
}

// --- The client hears of it ---------------------------------------------------------------------

void Router::flush(std::uint64_t id, TimePoint now, Effects& effects) {
  Request& request = book_.at(id);
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
    deliver(id, request, std::move(event), now, effects);
  }
  if (request.unfinished > 0) return;
  effects.add(RequestObservation{Observed::kEndToEnd, seconds(now - request.accepted)});
  book_.finish(id);
}

void Router::deliver(std::uint64_t id, Request& request, GenerationEvent event, TimePoint now,
                     Effects& effects) {
  if (!std::exchange(request.first_event_sent, true)) {
    event.prompt_tokens = request.prepared->prompt;
    event.cached_tokens = request.cached_tokens;
    event.prompt_logprobs = std::exchange(request.prompt_logprobs, {});
  }
  if (event.request_done) request.timing.total_ms = milliseconds(now - request.accepted);
  event.timing = request.timing;
  effects.add(DeliverEvent{id, std::move(event)});
}

void Router::fail(std::uint64_t id, Error error, TimePoint now, Effects& effects) {
  Request& request = book_.at(id);
  for (Choice& choice : request.choices) {
    const bool wanted = !choice.finished;
    placing_.release(journal(), choice, wanted, effects);
    placing_.wait_no_more(choice);
  }
  const bool cancelled = error.code == ErrorCode::kCancelled;
  GenerationEvent event;
  event.request_done = true;
  event.error = std::move(error);
  deliver(id, request, std::move(event), now, effects);
  book_.fail(id, cancelled);
}

// --- Replicas come and go -----------------------------------------------------------------------

void Router::on(ReplicasChanged changed, TimePoint, Effects& effects) {
  placing_.serve(book_, changed, effects);
}

void Router::on(LifeLost lost, TimePoint now, Effects&) { evidence_.note_loss(book_, lost, now); }

void Router::on(LifeCrashed crashed, TimePoint now, Effects& effects) {
  CrashEvidence::Verdict verdict = evidence_.note_crash(book_, crashed, now);
  for (auto& [request, error] : verdict.convicted)
    if (book_.contains(request)) fail(request, std::move(error), now, effects);
  for (const SequenceId id : verdict.suspects)
    if (journal().find(id)) placing_.suspect(book_, book_.choice_of(id), effects);
}

void Router::on(PrefixesForgotten forgotten, TimePoint, Effects&) {
  for (const std::uint32_t replica : forgotten.replicas) placing_.forget_prefixes(replica);
}

void Router::on(ReplicasLost lost, TimePoint, Effects& effects) {
  for (const std::uint32_t replica : lost.replicas) placing_.lose(book_, replica, effects);
}

void Router::on(AdmissionChanged changed, TimePoint, Effects&) { admission_ = std::move(changed); }

void Router::on(RequestsEnd end, TimePoint now, Effects& effects) {
  placing_.clear();
  admission_ = {false, end.why};
  while (!book_.all().empty()) fail(book_.all().begin()->first, unavailable(end.why), now, effects);
}

// --- Time passes --------------------------------------------------------------------------------

void Router::on_wake(TimePoint now, Effects& effects) {
  for (const auto* next = book_.next_deadline(); next && next->first <= now;
       next = book_.next_deadline()) {
    const std::uint64_t id = next->second;
    const double allowed_s = seconds(book_.at(id).prepared->timeout);
    fail(id,
         deadline_exceeded("The request was not done within " +
                           std::to_string(static_cast<std::int64_t>(allowed_s)) +
                           " s; ask for less, or raise --request-timeout."),
         now, effects);
  }
}

void Router::end_turn(TimePoint now, Effects& effects) {
  share_room(effects);
  placing_.assign(book_, now, effects);
  if (const auto* next = book_.next_deadline()) effects.wake_at(next->first);
  if (const auto pause_end = placing_.next_pause_end()) effects.wake_at(*pause_end);
  const RequestCounts counts = book_.counts();
  if (counts == told_ && book_.all().empty()) return;
  told_ = counts;
  effects.add(RequestsChanged{});
}

std::string Router::violation() const {
  std::string invariant = book_.violation();
  return invariant.empty() ? placing_.violation(book_) : invariant;
}

}  // namespace troupe
