#include "actors/router/router.h"

#include <algorithm>
#include <cassert>
#include <string>
#include <utility>

#include "runtime/in_hand.h"
#include "runtime/limits.h"
#include "runtime/xxh3.h"

namespace troupe {
namespace {

/// Prompt tokens of all choices of one request: 16 MiB of a control session's unsent bytes.
constexpr std::size_t kPromptCopiesTokensMax = 4u << 20;
static_assert(kPromptCopiesTokensMax * sizeof(TokenId) * 4 <= limits::kControlUnsentBytesMax);

using Observed = RequestObservation::Kind;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }
double milliseconds(Duration duration) { return 1000.0 * seconds(duration); }

Error too_many() { return resource_exhausted("Too many requests are waiting; try again later."); }

/// Of a request that has none. Of one with a key it is the same each time: who asks again after it
/// failed gets the same tokens.
std::uint64_t seed_of(const PreparedRequest& request, std::uint64_t random) {
  const RequestName* name = request.name.get();
  if (!name || name->key.empty()) return random;
  return xxh3_64(name->key.data(), name->key.size(), name->owner + name->index);
}

bool ends_attempt(const SequenceEvent& event) {
  return event.error || event.finish != FinishReason::kNone;
}

}  // namespace

Router::Router(Options options)
    : options_(std::move(options)),
      book_({options_.journal_words_max, options_.journal_file, options_.journal_folder,
             options_.started, options_.tokenizer, options_.shares}),
      placing_(options_.prefix_caching, options_.shares) {
  if (!options_.journal) return;
  book_.restore(std::move(*std::exchange(options_.journal, nullptr)), options_.started.at);
  for (const auto& [id, request] : book_.all()) {
    if (request.unfinished == 0) over_.push_back(id);
    for (const Choice& choice : request.choices)
      if (!choice.finished) placing_.wait(choice);
  }
}

// --- Requests come ------------------------------------------------------------------------------

void Router::on(SubmitRequest submit, TimePoint now, Effects& effects) {
  const std::uint64_t ticket = submit.ticket;
  const PreparedRequest& asked = submit.request;
  if (const auto* group = group_of_key(asked)) {
    if (group->body != asked.name->body)
      return effects.add(RequestAccepted{ticket, used_key()});
    if (const std::uint64_t known = group->requests[asked.name->index])
      return attach(ticket, known, {}, true, now, effects);
  }
  const auto number = accept(std::move(submit), now);
  if (!number.ok()) return effects.add(RequestAccepted{ticket, number.error()});
  Request& request = book_.at(*number);
  request.readers.push_back({ticket, {}, false});
  effects.add(RequestAccepted{ticket, *number, request.prepared->name,
                              journal().request(*number)->accepted_unix_ms});
  effects.add(RequestObservation{Observed::kPromptTokens,
                                 static_cast<double>(request.prepared->prompt.size())});
  effects.add(
      RequestObservation{Observed::kMaxTokens, static_cast<double>(request.prepared->max_tokens)});
  if (book_.keeping().awaits(request.mark)) unkept_.push_back({now, request.mark, *number});
}

Result<std::uint64_t> Router::accept(SubmitRequest submit, TimePoint now) {
  PreparedRequest& prepared = submit.request;
  assert(!prepared.prompt.empty() && prepared.n >= 1);
  if (!placing_.any_replica() && !admission_.waits) return unavailable(admission_.why);
  if (prepared.name && !trouble().empty()) return unavailable(trouble());
  // Each choice carries the prompt to its replica: one request must not fill the control lane.
  if (prepared.prompt.size() * prepared.n > kPromptCopiesTokensMax)
    return invalid_argument("n: " + std::to_string(prepared.n) + " choices of a prompt of " +
                            std::to_string(prepared.prompt.size()) +
                            " tokens are too much for one request; send several.");
  if (!book_.room().takes(prepared)) return too_many();

  if (!prepared.seed) prepared.seed = seed_of(prepared, submit.random_seed);
  prepared.sampling.seed = *prepared.seed;
  if (const auto* group = group_of_key(prepared); group && group->id != prepared.name->id) {
    auto name = std::make_shared<RequestName>(*prepared.name);
    name->id = group->id;  // of the prompts that were accepted before
    prepared.name = std::move(name);
  }
  const std::uint64_t id = book_.add(std::move(prepared), now);
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
  const Error why = cancelled("The client cancelled the request.");
  const auto leave = [&] {
    GenerationEvent event;
    event.request_done = true;
    event.error = why;
    effects.add(DeliverEvent{cancel.request, std::move(event), {cancel.ticket}, true});
  };
  const bool late = std::erase_if(latecomers_, [&](const Latecomer& latecomer) {
                      return latecomer.ticket == cancel.ticket;
                    }) > 0;
  if (!book_.contains(cancel.request)) return late ? leave() : void();
  Request& request = book_.at(cancel.request);
  const auto reader =
      std::ranges::find(request.readers, cancel.ticket, &RequestBook::Reader::ticket);
  if (cancel.ticket != 0 && reader == request.readers.end()) return late ? leave() : void();
  if (cancel.ticket == 0 || (request.readers.size() == 1 && !request.goes_on))
    return fail(cancel.request, why, now, effects);
  request.readers.erase(reader);
  leave();
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
  Choice* choice = book_.find(event.sequence);
  if (choice && journal().find(event.sequence)->attempt == event.attempt &&
      placing_.runs_at(*choice, from))
    return choice;
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
  const auto prepared = request.prepared;
  const InHand hand(prepared->id());
  if (options_.on_tokens) options_.on_tokens(event.tokens);
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
  if (!accept_hidden(request, event))
    return retry(id, *choice,
                 internal_error("Hidden states of a replica were lost on their way."), now,
                 effects);
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
  if (wanted > 0 && gathered.size() == wanted)
    book_.keep_prompt_logprobs(journal().find(event.sequence)->request);
}

/// False: some that came before these are not there.
bool Router::accept_hidden(Request& request, const SequenceEvent& event) {
  auto& gathered = request.hidden;
  const std::size_t wanted = request.prepared->hidden_values();
  if (request.first_event_sent || gathered.size() == wanted) return true;  // Known.
  if (event.hidden_index > gathered.size()) return false;
  if (event.hidden_index == gathered.size() && gathered.size() + event.hidden.size() <= wanted) {
    gathered.insert(gathered.end(), event.hidden.begin(), event.hidden.end());
    if (gathered.size() == wanted) book_.keep_hidden(journal().find(event.sequence)->request);
  }
  return gathered.size() == wanted || event.finish == FinishReason::kNone;
}

void Router::accept_tokens(Request& request, Choice& choice, const SequenceEvent& event,
                           TimePoint now, Effects& effects) {
  JournalTokens record{event.sequence, event.index, {}};
  for (const TokenOutput& token : event.tokens) {
    if (event.index + record.tokens.size() >= request.prepared->max_tokens) break;
    record.tokens.push_back(token);
    choice.pending.tokens.push_back(token);
    choice.dirty = true;
    const bool stop_token =
        event.finish == FinishReason::kStop && record.tokens.size() == event.tokens.size();
    choice.pending.text += choice.text.feed(token.token, stop_token);
    if (choice.text.stopped()) break;
  }
  const std::size_t count = record.tokens.size();
  if (count > 0) {
    book_.add_tokens(std::move(record));
    placing_.note_progress(choice);
    measure_tokens(request, choice, count, now, effects);
  }
  if (choice.text.stopped()) {
    finish_choice(request, choice, FinishReason::kStop, now);
  } else if (event.finish != FinishReason::kNone) {
    finish_choice(request, choice, event.finish, now);
  } else if (count < event.tokens.size()) {
    finish_choice(request, choice, FinishReason::kLength, now);
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

void Router::finish_choice(Request& request, Choice& choice, FinishReason reason, TimePoint now) {
  choice.pending.text += choice.text.finish();
  if (choice.text.stopped()) reason = FinishReason::kStop;
  choice.pending.finish = reason;
  choice.dirty = true;
  book_.finish_choice(request, choice, reason);
  if (book_.keeping().awaits(request.end_mark))
    unkept_.push_back({now, request.end_mark, choice.request});
}

// --- The client hears of it ---------------------------------------------------------------------

void Router::flush(std::uint64_t id, TimePoint now, Effects& effects) {
  Request& request = book_.at(id);
  if (held(request)) return;
  const auto prepared = request.prepared;
  const InHand hand(prepared->id());
  const auto dirty = [](const Choice& choice) { return choice.dirty; };
  auto& choices = request.choices;
  for (auto choice = std::find_if(choices.begin(), choices.end(), dirty);
       choice != choices.end();) {
    GenerationEvent event = std::exchange(choice->pending, {});
    choice->dirty = false;
    event.choice = static_cast<std::uint32_t>(choice - choices.begin());
    choice = std::find_if(choice, choices.end(), dirty);
    event.request_done = request.unfinished == 0 && choice == choices.end();
    effects.add(delivery(id, request, std::move(event), now));
  }
  catch_up(id, request);
  if (request.unfinished > 0) return;
  effects.add(RequestObservation{Observed::kEndToEnd, seconds(now - request.accepted)});
  book_.finish(id, now);
}

DeliverEvent Router::delivery(std::uint64_t id, Request& request, GenerationEvent event,
                              TimePoint now) {
  if (!std::exchange(request.first_event_sent, true)) {
    event.prompt_tokens = request.prepared->prompt;
    event.cached_tokens = request.cached_tokens;
    event.prompt_logprobs = std::exchange(request.prompt_logprobs, {});
    event.hidden = std::exchange(request.hidden, {});
  }
  if (event.request_done) request.timing.total_ms = milliseconds(now - request.accepted);
  event.timing = request.timing;
  std::vector<std::uint64_t> readers;
  for (const auto& reader : request.readers)
    if (!reader.waits || event.error) readers.push_back(reader.ticket);
  return {id, std::move(event), std::move(readers)};
}

DeliverEvent Router::give_up(std::uint64_t id, const Error& error, TimePoint now,
                             Effects& effects) {
  Request& request = book_.at(id);
  for (Choice& choice : request.choices) {
    const bool wanted = !choice.finished;
    placing_.release(journal(), choice, wanted, effects);
    placing_.wait_no_more(choice);
  }
  GenerationEvent event;
  event.request_done = true;
  event.error = error;
  DeliverEvent last = delivery(id, request, std::move(event), now);
  // Those who only look at it hear of it, too.
  for (const Latecomer& latecomer : latecomers_)
    if (latecomer.request == id && !latecomer.follows) last.readers.push_back(latecomer.ticket);
  std::erase_if(latecomers_, [&](const Latecomer& l) { return l.request == id; });
  return last;
}

void Router::fail(std::uint64_t id, Error error, TimePoint now, Effects& effects) {
  const bool named = book_.at(id).prepared->name != nullptr;
  DeliverEvent last = give_up(id, error, now, effects);
  book_.fail(id, error, now);
  if (!named) return effects.add(std::move(last));
  tell_when_kept(std::move(last), now, effects);
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
    if (Choice* choice = book_.find(id)) placing_.suspect(book_, *choice, effects);
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
  while (!latecomers_.empty()) tell_latecomers(kToldTokensATurn, now, effects);
  // The doors close: who is not told now will not be.
  for (Unkept& unkept : std::exchange(unkept_, {}))
    tell(std::move(unkept.news), unkept.mark, now, effects);
}

// --- Time passes --------------------------------------------------------------------------------

void Router::on_wake(TimePoint now, Effects& effects) {
  if (const auto end = patience_ends(); end && *end <= now) {
    book_.keeping().give_up(unkept_.front().mark, now, effects);
    stop_trusting(effects, now);
  }
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
  for (const std::uint64_t id : std::exchange(over_, {})) flush(id, now, effects);
  tell_latecomers(kToldTokensATurn, now, effects);
  share_room(effects);
  placing_.assign(book_, now, effects);
  book_.forget_old(now);
  book_.keeping().end_turn(journal(), now, effects);
  if (const auto news = book_.keeping().take_copy_news())
    std::visit([&](const auto& n) { effects.send(options_.supervisor, n); }, *news);
  if (const auto end = patience_ends()) effects.wake_at(*end);
  if (const auto forgotten = book_.next_forgotten()) effects.wake_at(*forgotten);
  if (const auto* next = book_.next_deadline()) effects.wake_at(next->first);
  if (const auto pause_end = placing_.next_pause_end()) effects.wake_at(*pause_end);
  const RequestCounts counts = this->counts();
  if (counts == told_ && trouble() == told_trouble_ && book_.all().empty()) return;
  told_ = counts;
  told_trouble_ = trouble();
  effects.add(RequestsChanged{});
}

std::string Router::violation() const {
  std::string invariant = book_.violation();
  return invariant.empty() ? placing_.violation(book_) : invariant;
}

}  // namespace troupe
