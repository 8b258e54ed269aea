#include "actors/company/client_door.h"

#include <shared_mutex>

#include "runtime/limits.h"

namespace troupe {

struct ClientDoor::State {
  State(RouterActor& router, Send send) : router(router), send(std::move(send)) {}

  using Key = ClientDoor::Key;
  RouterActor& router;
  const Send send;
  std::mutex mutex;
  std::map<Key, std::uint64_t> requests;  // guarded by mutex; 0 until it is accepted

  std::shared_mutex closing;  // held shared while the Router is called from outside of it
  bool closed = false;        // guarded by closing

  void fail(const Key& key, Error error) {
    {
      std::lock_guard lock(mutex);
      requests.erase(key);
    }
    ClientGeneration answer{key.second, {}};
    answer.event.error = std::move(error);
    (void)send(key.first, std::move(answer));
  }
};

namespace {

template <class State>
class Sink : public GenerationSink {
 public:
  Sink(std::shared_ptr<State> state, typename State::Key key)
      : state_(std::move(state)), key_(key) {}
  void on_event(GenerationEvent event) override {
    const bool last = event.request_done || event.error;
    const bool failed = event.error.has_value();
    std::uint64_t request = 0;
    {
      std::lock_guard lock(state_->mutex);
      const auto it = state_->requests.find(key_);
      if (it != state_->requests.end()) {
        request = it->second;
        if (last) state_->requests.erase(it);
      }
    }
    const Status sent = state_->send(key_.first, ClientGeneration{key_.second, std::move(event)});
    if (sent.ok() || failed) return;
    // What the lane does not take, such as log-probabilities of a very long prompt, must not leave
    // the client waiting.
    state_->fail(key_, sent.error());
    if (!last && request != 0) state_->router.cancel(request);
  }

 private:
  std::shared_ptr<State> state_;
  const typename State::Key key_;
};

}  // namespace

ClientDoor::ClientDoor(RouterActor& router, Send send)
    : state_(std::make_shared<State>(router, std::move(send))) {}

bool ClientDoor::takes(const Message& message) {
  return std::holds_alternative<ClientCancel>(message) ||
         std::holds_alternative<ClientGenerate>(message);
}

void ClientDoor::on(std::uint32_t session, const Message& message) {
  const auto* cancel = std::get_if<ClientCancel>(&message);
  const auto* generate = std::get_if<ClientGenerate>(&message);
  std::shared_lock open(state_->closing);
  if (state_->closed) return;
  if (cancel)
    this->cancel({session, cancel->query});
  else if (generate)
    this->generate({session, generate->query}, generate->request);
}

void ClientDoor::cancel(const Key& key) {
  std::uint64_t request = 0;
  {
    std::lock_guard lock(state_->mutex);
    const auto it = state_->requests.find(key);
    if (it == state_->requests.end()) return;
    request = it->second;
    // The Router has not said yes yet: when it does, the missing entry says that nobody wants it.
    if (request == 0) state_->requests.erase(it);
  }
  if (request != 0) state_->router.cancel(request);
}

void ClientDoor::generate(const Key& key, const GenerationRequest& request) {
  bool full = false;
  {
    std::lock_guard lock(state_->mutex);
    // A query's number that is in use: an answer would end the other one.
    if (state_->requests.contains(key)) return;
    full = state_->requests.size() >= limits::kRequestsMax;
    if (!full) state_->requests.emplace(key, 0);
  }
  if (full)
    return state_->fail(key, resource_exhausted("Too many requests are waiting; try again later."));
  state_->router.submit_async(request, std::make_shared<Sink<State>>(state_, key),
                              [state = state_, key](Result<std::uint64_t> number) {
                                if (!number.ok()) return state->fail(key, number.error());
                                bool gone = false;
                                {
                                  std::lock_guard lock(state->mutex);
                                  const auto it = state->requests.find(key);
                                  gone = it == state->requests.end();
                                  if (!gone) it->second = *number;
                                }
                                if (gone) state->router.cancel(*number);
                              });
}

void ClientDoor::session_down(std::uint32_t session) {
  std::vector<std::uint64_t> gone;
  {
    std::lock_guard lock(state_->mutex);
    std::erase_if(state_->requests, [&](const auto& entry) {
      if (entry.first.first != session) return false;
      if (entry.second != 0) gone.push_back(entry.second);
      return true;
    });
  }
  std::shared_lock open(state_->closing);
  if (state_->closed) return;
  for (const std::uint64_t request : gone) state_->router.cancel(request);
}

void ClientDoor::close() {
  std::unique_lock lock(state_->closing);
  state_->closed = true;
}

}  // namespace troupe
