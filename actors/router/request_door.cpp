#include "actors/router/request_door.h"

#include <atomic>
#include <utility>

#include "runtime/limits.h"
#include "transport/journal_records.h"

namespace troupe {
namespace {

/// Requests that the status names: a page of them, so that it stays small under load.
constexpr std::size_t kListedRequestsMax = 64;
/// How old that list may be: a person does not see it, and steps come far more often.
constexpr Duration kListInterval = std::chrono::milliseconds(100);
// Every request that waits for its number is one local message at most.
static_assert(limits::kRequestsMax <= limits::kMailboxReserved);

Error stopped() { return cancelled("The cluster was stopped."); }
Error overloaded() { return unavailable("The Router is overloaded; try again later."); }

}  // namespace

RequestDoor::RequestDoor(Post& post, Ref<RouterInbox> router, Options options)
    : post_(post), router_(router), options_(std::move(options)) {}

RequestDoor::~RequestDoor() { close(); }

void RequestDoor::close() {
  for (const auto& [ticket, reader] : close(stopped())) {
    GenerationEvent event;
    event.error = stopped();
    reader.sink->on_event(std::move(event));
  }
}

void RequestDoor::fall_silent() {
  static_cast<void>(close(unavailable("This head ends; try again in a moment.")));
}

/// Who has been reading.
RequestDoor::Readers RequestDoor::close(const Error& why) {
  decltype(pending_) pending;
  decltype(readers_) readers;
  decltype(questions_) questions;
  {
    std::lock_guard lock(mutex_);
    if (!closed_) closed_ = why;
    pending.swap(pending_);
    readers.swap(readers_);
    questions.swap(questions_);
  }
  for (const auto& [ticket, waiting] : pending) waiting.accepted(why);
  for (const auto& [ticket, question] : questions) question->set_value(why);
  return readers;
}

// --- Doors ask ----------------------------------------------------------------------------------

Result<AcceptedRequest> RequestDoor::wait_accepted(const std::function<void(Accepted)>& ask) {
  struct Waiting {
    std::promise<Result<AcceptedRequest>> promise;
    std::atomic<bool> settled{false};  // by the answer or by the end of the wait
  };
  auto waiting = std::make_shared<Waiting>();
  auto future = waiting->promise.get_future();
  ask([waiting, this](Result<AcceptedRequest> accepted) {
    if (!waiting->settled.exchange(true))
      waiting->promise.set_value(std::move(accepted));
    else if (accepted.ok())
      cancel(accepted->reader);  // nobody waits for it any more
  });
  if (future.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready &&
      !waiting->settled.exchange(true))
    return overloaded();
  return future.get();
}

Result<AcceptedRequest> RequestDoor::submit(GenerationRequest request,
                                            std::shared_ptr<GenerationSink> sink) {
  return wait_accepted([&](Accepted accepted) {
    submit_async(std::move(request), std::move(sink), std::move(accepted));
  });
}

void RequestDoor::submit_async(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                               Accepted accepted) {
  auto prepared = options_.frontend->prepare(request);
  if (!prepared.ok()) return accepted(prepared.error());
  // What a head could not read again would be lost with it.
  if (prepared->name)
    if (const Status kept = transport::can_keep(*prepared); !kept.ok())
      return accepted(kept.error());
  std::uint64_t ticket = 0;
  Pending pending{std::move(sink), std::move(accepted)};
  if (const Status kept = keep(ticket, pending); !kept.ok()) return pending.accepted(kept.error());
  if (!post_.tell(router_, SubmitRequest{ticket, std::move(*prepared), options_.random_seed()}))
    this->accepted({ticket, overloaded()});
}

Result<AcceptedRequest> RequestDoor::attach(const RequestWanted& wanted,
                                            std::shared_ptr<GenerationSink> sink) {
  return wait_accepted([&](Accepted accepted) {
    std::uint64_t ticket = 0;
    Pending pending{std::move(sink), std::move(accepted)};
    if (const Status kept = keep(ticket, pending); !kept.ok())
      return pending.accepted(kept.error());
    if (!post_.tell(router_, AttachReader{ticket, wanted}))
      this->accepted({ticket, overloaded()});
  });
}

/// Takes `pending` if it is kept.
Status RequestDoor::keep(std::uint64_t& ticket, Pending& pending) {
  std::lock_guard lock(mutex_);
  if (closed_) return *closed_;
  if (pending_.size() >= limits::kRequestsMax)
    return resource_exhausted("Too many requests are waiting; try again later.");
  ticket = ++last_ticket_;
  pending_.emplace(ticket, std::move(pending));
  return {};
}

Result<std::vector<NamedRequest>> RequestDoor::ask_for(FindRequests wanted) {
  const auto question = std::make_shared<Found>();
  auto future = question->get_future();
  std::uint64_t ticket = 0;
  {
    std::lock_guard lock(mutex_);
    if (closed_) return *closed_;
    ticket = ++last_ticket_;
    questions_.emplace(ticket, question);
  }
  wanted.ticket = ticket;
  const bool told = post_.tell(router_, std::move(wanted));
  if (told && future.wait_for(limits::kRouterAnswerDeadline) == std::future_status::ready)
    return future.get();
  std::lock_guard lock(mutex_);
  questions_.erase(ticket);
  return overloaded();
}

Result<std::vector<NamedRequest>> RequestDoor::find(const std::string& id, std::uint64_t owner) {
  return ask_for({.id = id, .owner = owner});
}

Result<std::vector<NamedRequest>> RequestDoor::find_key(const std::string& key,
                                                        std::uint64_t owner) {
  return ask_for({.owner = owner, .key = key});
}

Status RequestDoor::forget(const std::string& id, std::uint64_t owner) {
  const auto found = ask_for({.id = id, .owner = owner, .forget = true});
  return found.ok() ? Status() : Status(found.error());
}

void RequestDoor::cancel(std::uint64_t ticket) {
  std::uint64_t request = 0;
  {
    std::lock_guard lock(mutex_);
    const auto reader = readers_.find(ticket);
    if (reader == readers_.end()) return;
    request = reader->second.request;
  }
  post_.tell(router_, CancelRequest{request, ticket});
}

// --- The Router answers -------------------------------------------------------------------------

void RequestDoor::accepted(RequestAccepted accepted) {
  Accepted tell;
  {
    std::lock_guard lock(mutex_);
    auto found = pending_.extract(accepted.ticket);
    if (!found) return;
    Pending& pending = found.mapped();
    tell = std::move(pending.accepted);
    if (accepted.request.ok()) {
      readers_.emplace(accepted.ticket, Reader{std::move(pending.sink), *accepted.request});
    }
  }
  if (accepted.request.ok())
    tell(AcceptedRequest{accepted.ticket, std::move(accepted.name), accepted.unix_ms});
  else
    tell(accepted.request.error());
}

void RequestDoor::found(RequestsFound found) {
  std::lock_guard lock(mutex_);
  if (auto question = questions_.extract(found.ticket))
    question.mapped()->set_value(std::move(found.requests));
}

void RequestDoor::deliver(DeliverEvent delivery) {
  GenerationEvent& event = delivery.event;
  const bool over = event.request_done || event.error.has_value();
  if (!delivery.again) count(delivery);
  std::vector<std::shared_ptr<GenerationSink>> sinks;
  {
    std::lock_guard lock(mutex_);
    for (const std::uint64_t ticket : delivery.readers) {
      const auto reader = readers_.find(ticket);
      if (reader == readers_.end()) continue;
      sinks.push_back(reader->second.sink);
      if (over) readers_.erase(reader);
    }
  }
  for (std::size_t i = 0; i + 1 < sinks.size(); ++i) sinks[i]->on_event(event);
  if (!sinks.empty()) sinks.back()->on_event(std::move(event));
}

/// For the metrics: each event of a request once, whoever reads it.
void RequestDoor::count(const DeliverEvent& delivery) {
  const GenerationEvent& event = delivery.event;
  FinishedRequest finished;
  {
    std::lock_guard lock(mutex_);
    FinishedRequest& totals = totals_[delivery.request];
    if (!event.prompt_tokens.empty()) totals.prompt_tokens = event.prompt_tokens.size();
    totals.generation_tokens += event.tokens.size();
    if (event.finish != FinishReason::kNone) totals.reason = event.finish;
    if (!event.request_done && !event.error) return;
    finished = totals;
    totals_.erase(delivery.request);
  }
  if (!options_.metrics) return;
  finished.timing = event.timing;
  if (event.error) finished.reason = FinishReason::kNone;
  finished.aborted = event.error && event.error->code == ErrorCode::kCancelled;
  options_.metrics->on_request_finished(finished);
}

void RequestDoor::observe(const RequestObservation& observation) {
  using Kind = RequestObservation::Kind;
  const auto count = static_cast<std::uint64_t>(observation.value);
  Metrics* const metrics = options_.metrics;
  const TimePoint at = now();
  std::lock_guard lock(mutex_);
  switch (observation.kind) {
    case Kind::kPromptTokens:
      window_.add_prompt_tokens(count, at);
      if (metrics) metrics->add_prompt_tokens(count);
      break;
    case Kind::kMaxTokens:
      if (metrics) metrics->on_max_tokens(count);
      break;
    case Kind::kGenerationTokens:
      window_.add_generation_tokens(count, at);
      if (metrics) metrics->add_generation_tokens(count);
      break;
    case Kind::kFirstToken:
      window_.add_first_token(observation.value, at);
      if (metrics) metrics->on_first_token(observation.value);
      break;
    case Kind::kInterToken:
      window_.add_inter_token(observation.value, at);
      if (metrics) metrics->on_inter_token(observation.value);
      break;
    case Kind::kPrefixQueries:
      if (metrics) metrics->add_prefix_queries(count);
      break;
    case Kind::kPrefixHits:
      if (metrics) metrics->add_prefix_hits(count);
      break;
    case Kind::kQueueTime:
    case Kind::kEndToEnd:
      break;  // with the finished request
  }
}

void RequestDoor::changed(const Router& router) {
  const TimePoint at = now();
  const RequestCounts counts = router.counts();
  std::lock_guard lock(mutex_);
  if (options_.metrics) {
    options_.metrics->set_requests_running(counts.running);
    options_.metrics->set_requests_waiting(counts.waiting);
    for (auto told = counts_.replayed; told < counts.replayed; ++told)
      options_.metrics->on_replayed_request();
  }
  trouble_ = router.trouble();
  // Requests that came or ended show at once; their tokens may lag.
  if (counts == counts_ && at < list_due_) return;
  counts_ = counts;
  list_due_ = at + kListInterval;
  list_ = router.list(kListedRequestsMax);
}

RequestCounts RequestDoor::counts() const {
  std::lock_guard lock(mutex_);
  return counts_;
}

RequestRates RequestDoor::rates() const {
  std::lock_guard lock(mutex_);
  return window_.rates(now());
}

std::string RequestDoor::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

std::vector<RequestSummary> RequestDoor::list() const {
  std::lock_guard lock(mutex_);
  return list_;
}

}  // namespace troupe
