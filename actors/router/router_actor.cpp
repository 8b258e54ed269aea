#include "actors/router/router_actor.h"

#include <atomic>
#include <future>
#include <mutex>
#include <unordered_map>

#include "runtime/limits.h"

namespace troupe {
namespace {

/// Requests that the status names: a page of them, so that it stays small under load.
constexpr std::size_t kListedRequestsMax = 64;
/// How old that list may be: a person does not see it, and steps come far more often.
constexpr Duration kListInterval = std::chrono::milliseconds(100);

}  // namespace

struct RouterActor::State {
  State(Post& post, Options o)
      : post(post), options(std::move(o)), machine({options.frontend->tokenizer()}) {}

  struct Client {
    std::shared_ptr<GenerationSink> sink;
    FinishedRequest totals;
  };

  void accept(PreparedRequest prepared, std::shared_ptr<GenerationSink> sink,
              const std::function<void(Result<std::uint64_t>)>& accepted) {
    RouterActions actions;
    const std::uint64_t prompt_tokens = prepared.prompt.size();
    auto number = machine.submit(std::move(prepared), options.random_seed(), now(), actions);
    if (number.ok()) {
      Client client{std::move(sink), {}};
      client.totals.prompt_tokens = prompt_tokens;
      clients.emplace(*number, std::move(client));
    }
    accepted(std::move(number));
    carry_out(actions);
  }

  void carry_out(RouterActions& actions) {
    for (auto& send : actions.sends) post.send(options.self, std::move(send));
    for (auto& delivery : actions.deliveries) deliver(delivery);
    observe(actions);
    publish();
    if (options.metrics) {
      options.metrics->set_requests_running(newest.running);
      options.metrics->set_requests_waiting(newest.waiting);
      for (; replays_told < newest.replayed; ++replays_told) options.metrics->on_replayed_request();
    }
    if (actions.wake) handle.wake_at(*actions.wake);
  }

  /// For those who look on from other threads.
  void publish() {
    const TimePoint at = now();
    std::lock_guard lock(mutex);
    newest = machine.counts();
    if (at < list_due) return handle.wake_at(list_due);
    list_due = at + kListInterval;
    newest_list = machine.list(kListedRequestsMax);
  }

  void deliver(RouterActions::Deliver& delivery) {
    const auto it = clients.find(delivery.request);
    if (it == clients.end()) return;
    Client& client = it->second;
    client.totals.generation_tokens += delivery.event.tokens.size();
    if (delivery.event.finish != FinishReason::kNone) client.totals.reason = delivery.event.finish;
    const bool over = delivery.event.request_done || delivery.event.error.has_value();
    if (!over) return client.sink->on_event(std::move(delivery.event));
    const Client done = std::move(client);
    clients.erase(it);
    FinishedRequest finished = done.totals;
    finished.timing = delivery.event.timing;
    if (delivery.event.error) finished.reason = FinishReason::kNone;
    finished.aborted = delivery.event.error && delivery.event.error->code == ErrorCode::kCancelled;
    if (options.metrics) options.metrics->on_request_finished(finished);
    done.sink->on_event(std::move(delivery.event));
  }

  void observe(const RouterActions& actions) {
    if (actions.observations.empty()) return;
    using Kind = RequestObservation::Kind;
    const TimePoint at = now();
    std::lock_guard lock(mutex);
    for (const auto& seen : actions.observations) {
      const auto count = static_cast<std::uint64_t>(seen.value);
      switch (seen.kind) {
        case Kind::kPromptTokens:
          window.add_prompt_tokens(count, at);
          if (options.metrics) options.metrics->add_prompt_tokens(count);
          break;
        case Kind::kGenerationTokens:
          window.add_generation_tokens(count, at);
          if (options.metrics) options.metrics->add_generation_tokens(count);
          break;
        case Kind::kFirstToken:
          window.add_first_token(seen.value, at);
          if (options.metrics) options.metrics->on_first_token(seen.value);
          break;
        case Kind::kInterToken:
          window.add_inter_token(seen.value, at);
          if (options.metrics) options.metrics->on_inter_token(seen.value);
          break;
        case Kind::kQueueTime:
        case Kind::kEndToEnd:
          break;  // with the finished request
      }
    }
  }

  Post& post;
  const Options options;
  ActorHandle handle;

  // Inside the actor only.
  Router machine;
  std::unordered_map<std::uint64_t, Client> clients;
  std::uint64_t replays_told = 0;  // to the metrics
  TimePoint list_due{};            // when the list may be made anew

  mutable std::mutex mutex;
  RequestCounts newest;                     // guarded by mutex; written inside the actor only
  std::vector<RequestSummary> newest_list;  // the same
  RequestWindow window;                     // the same
};

namespace {

/// Runs a machine's turn inside the actor.
template <class State, class Work>
void turn(State& state, Work work) {
  RouterActions actions;
  work(state.machine, actions);
  state.carry_out(actions);
}

template <class State>
class Body : public ActorBody {
 public:
  explicit Body(std::shared_ptr<State> state) : state_(std::move(state)) {}
  void on_message(const Envelope& envelope) override {
    turn(*state_, [&](Router& m, auto& actions) { m.on(envelope, now(), actions); });
  }
  void on_wake() override {
    turn(*state_, [&](Router& m, auto& actions) { m.on_wake(now(), actions); });
  }

 private:
  std::shared_ptr<State> state_;
};

}  // namespace

RouterActor::RouterActor(caf::actor_system& system, Post& post, Options options)
    : state_(std::make_shared<State>(post, std::move(options))) {
  auto state = state_;
  state_->handle = spawn_actor(
      system, [state](const ActorHandle&) { return std::make_unique<Body<State>>(state); });
  post.attach(state_->options.self, state_->handle);
}

RouterActor::~RouterActor() {
  state_->post.detach(state_->options.self);
  (void)state_->handle.call([state = state_] {
    for (auto& [number, client] : state->clients) {
      GenerationEvent event;
      event.error = cancelled("The cluster was stopped.");
      client.sink->on_event(std::move(event));
    }
    state->clients.clear();
  });
  state_->handle.stop_and_wait(limits::kActorStopDeadline);
}

Result<std::uint64_t> RouterActor::submit(GenerationRequest request,
                                          std::shared_ptr<GenerationSink> sink) {
  struct Waiting {
    std::promise<Result<std::uint64_t>> promise;
    std::atomic<bool> settled{false};  // by the answer or by the end of the wait
  };
  auto waiting = std::make_shared<Waiting>();
  auto future = waiting->promise.get_future();
  submit_async(std::move(request), std::move(sink),
               [waiting, state = state_](Result<std::uint64_t> number) {
                 if (!waiting->settled.exchange(true))
                   waiting->promise.set_value(std::move(number));
                 else if (number.ok())
                   cancel_in(state, *number);  // nobody waits for it any more
               });
  if (future.wait_for(limits::kRouterAnswerDeadline) != std::future_status::ready &&
      !waiting->settled.exchange(true))
    return unavailable("The Router is overloaded; try again later.");
  return future.get();
}

void RouterActor::submit_async(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                               std::function<void(Result<std::uint64_t>)> accepted) {
  auto prepared = state_->options.frontend->prepare(request);
  if (!prepared.ok()) return accepted(prepared.error());
  auto shared = std::make_shared<PreparedRequest>(std::move(*prepared));
  const Status queued = state_->handle.call([state = state_, shared, sink, accepted]() mutable {
    state->accept(std::move(*shared), std::move(sink), accepted);
  });
  if (!queued.ok()) accepted(queued.error());
}

void RouterActor::cancel(std::uint64_t request) { cancel_in(state_, request); }

void RouterActor::cancel_in(const std::shared_ptr<State>& state, std::uint64_t request) {
  (void)state->handle.call([state, request] {
    turn(*state, [&](Router& m, auto& actions) { m.cancel(request, now(), actions); });
  });
}

void RouterActor::on_replicas(PlacementVersion version, std::vector<ReplicaEndpoint> replicas) {
  (void)state_->handle.call([state = state_, version, replicas = std::move(replicas)] {
    turn(*state,
         [&](Router& m, auto& actions) { m.on_replicas(version, replicas, now(), actions); });
  });
}

void RouterActor::on_replicas_lost(std::vector<std::uint32_t> replicas, std::string why) {
  (void)state_->handle.call([state = state_, replicas = std::move(replicas), why = std::move(why)] {
    turn(*state,
         [&](Router& m, auto& actions) { m.on_replicas_lost(replicas, why, now(), actions); });
  });
}

void RouterActor::set_admission(bool waits, std::string why) {
  (void)state_->handle.call([state = state_, waits, why = std::move(why)] {
    turn(*state, [&](Router& m, auto& actions) { m.set_admission(waits, why, now(), actions); });
  });
}

void RouterActor::stop(std::string why) {
  (void)state_->handle.call([state = state_, why = std::move(why)] {
    turn(*state, [&](Router& m, auto& actions) { m.stop(why, now(), actions); });
  });
}

RequestCounts RouterActor::counts() const {
  std::lock_guard lock(state_->mutex);
  return state_->newest;
}

RequestRates RouterActor::rates() const {
  std::lock_guard lock(state_->mutex);
  return state_->window.rates(now());
}

std::vector<RequestSummary> RouterActor::list() const {
  std::lock_guard lock(state_->mutex);
  return state_->newest_list;
}

const ModelFrontend& RouterActor::frontend() const { return *state_->options.frontend; }

}  // namespace troupe
