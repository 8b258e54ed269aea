#include "actors/router/request_door.h"

#include <atomic>
#include <future>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// Requests that the status names: a page of them, so that it stays small under load.
constexpr std::size_t kListedRequestsMax = 64;
/// How old that list may be: a person does not see it, and steps come far more often.
constexpr Duration kListInterval = std::chrono::milliseconds(100);
// Every request that waits for its number is one local message at most.
static_assert(limits::kRequestsMax <= limits::kMailboxReserved);

Error stopped() { return cancelled("The cluster was stopped."); }

}  // namespace

RequestDoor::RequestDoor(Post& post, Ref<RouterInbox> router, Options options)
    : post_(post), router_(router), options_(std::move(options)) {}

RequestDoor::~RequestDoor() { close(); }

void RequestDoor::close() {
  std::unordered_map<std::uint64_t, Pending> pending;
  std::unordered_map<std::uint64_t, Client> clients;
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    pending.swap(pending_);
    clients.swap(clients_);
  }
  for (const auto& [ticket, waiting] : pending) waiting.accepted(stopped());
  for (const auto& [number, client] : clients) {
    GenerationEvent event;
    event.error = stopped();
    client.sink->on_event(std::move(event));
  }
}

// --- Doors ask ----------------------------------------------------------------------------------

Result<std::uint64_t> RequestDoor::submit(GenerationRequest request,
                                          std::shared_ptr<GenerationSink> sink) {
  struct Waiting {
    std::promise<Result<std::uint64_t>> promise;
    std::atomic<bool> settled{false};  // by the answer or by the end of the wait
  };
  auto waiting = std::make_shared<Waiting>();
  auto future = waiting->promise.get_future();
  submit_async(std::move(request), std::move(sink), [waiting, this](Result<std::uint64_t> number) {
    if (!waiting->settled.exchange(true))
      waiting->promise.set_value(std::move(number));
    else if (number.ok())
      cancel(*number);  // nobody waits for it any more
  });
  if (future.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready &&
      !waiting->settled.exchange(true))
    return unavailable("The Router is overloaded; try again later.");
  return future.get();
}

void RequestDoor::submit_async(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                               Accepted accepted) {
  auto prepared = options_.frontend->prepare(request);
  if (!prepared.ok()) return accepted(prepared.error());
  std::uint64_t ticket = 0;
  Pending pending{std::move(sink), std::move(accepted), prepared->prompt.size()};
  if (const Status kept = keep(ticket, pending); !kept.ok()) return pending.accepted(kept.error());
  if (!post_.tell(router_, SubmitRequest{ticket, std::move(*prepared), options_.random_seed()}))
    this->accepted({ticket, unavailable("The Router is overloaded; try again later.")});
}

/// Takes `pending` if it is kept.
Status RequestDoor::keep(std::uint64_t& ticket, Pending& pending) {
  std::lock_guard lock(mutex_);
  if (closed_) return stopped();
  if (pending_.size() >= limits::kRequestsMax)
    return resource_exhausted("Too many requests are waiting; try again later.");
  ticket = ++last_ticket_;
  pending_.emplace(ticket, std::move(pending));
  return {};
}

void RequestDoor::cancel(std::uint64_t request) { post_.tell(router_, CancelRequest{request}); }

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
      Client client{std::move(pending.sink), {}};
      client.totals.prompt_tokens = pending.prompt_tokens;
      clients_.emplace(*accepted.request, std::move(client));
    }
  }
  tell(std::move(accepted.request));
}

void RequestDoor::deliver(DeliverEvent delivery) {
  GenerationEvent& event = delivery.event;
  const bool over = event.request_done || event.error.has_value();
  std::shared_ptr<GenerationSink> sink;
  FinishedRequest finished;
  {
    std::lock_guard lock(mutex_);
    const auto it = clients_.find(delivery.request);
    if (it == clients_.end()) return;
    FinishedRequest& totals = it->second.totals;
    totals.generation_tokens += event.tokens.size();
    if (event.finish != FinishReason::kNone) totals.reason = event.finish;
    finished = totals;
    sink = it->second.sink;
    if (over) clients_.erase(it);
  }
  if (over && options_.metrics) {
    finished.timing = event.timing;
    if (event.error) finished.reason = FinishReason::kNone;
    finished.aborted = event.error && event.error->code == ErrorCode::kCancelled;
    options_.metrics->on_request_finished(finished);
  }
  sink->on_event(std::move(event));
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

std::vector<RequestSummary> RequestDoor::list() const {
  std::lock_guard lock(mutex_);
  return list_;
}

}  // namespace troupe
