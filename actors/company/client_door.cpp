#include "actors/company/client_door.h"

#include "runtime/limits.h"

namespace troupe {

struct ClientDoor::State {
  State(RouterActor& router, Send send) : router(router), send(std::move(send)) {}

  using Key = std::pair<std::uint32_t, std::uint64_t>;  // session, query
  RouterActor& router;
  const Send send;
  std::mutex mutex;
  std::map<Key, std::uint64_t> requests;  // guarded by mutex; 0 until it is accepted

  void fail(const Key& key, Error error) {
    {
      std::lock_guard lock(mutex);
      requests.erase(key);
    }
    ClientGeneration answer{key.second, {}};
    answer.event.error = std::move(error);
    send(key.first, std::move(answer));
  }
};

namespace {

template <class State>
class Sink : public GenerationSink {
 public:
  Sink(std::shared_ptr<State> state, typename State::Key key)
      : state_(std::move(state)), key_(key) {}
  void on_event(GenerationEvent event) override {
    if (event.request_done || event.error) {
      std::lock_guard lock(state_->mutex);
      state_->requests.erase(key_);
    }
    state_->send(key_.first, ClientGeneration{key_.second, std::move(event)});
  }

 private:
  std::shared_ptr<State> state_;
  const typename State::Key key_;
};

}  // namespace

ClientDoor::ClientDoor(RouterActor& router, Send send)
    : state_(std::make_shared<State>(router, std::move(send))) {}

bool ClientDoor::on(std::uint32_t session, const Message& message) {
  if (const auto* cancel = std::get_if<ClientCancel>(&message)) {
    std::uint64_t request = 0;
    {
      std::lock_guard lock(state_->mutex);
      const auto it = state_->requests.find({session, cancel->query});
      if (it != state_->requests.end()) request = it->second;
    }
    if (request != 0) state_->router.cancel(request);
    return true;
  }
  const auto* generate = std::get_if<ClientGenerate>(&message);
  if (!generate) return false;
  const State::Key key{session, generate->query};
  bool full = false;
  {
    std::lock_guard lock(state_->mutex);
    if (state_->requests.contains(key)) return true;  // a duplicate
    full = state_->requests.size() >= limits::kRequestsMax;
    if (!full) state_->requests.emplace(key, 0);
  }
  if (full) {
    state_->fail(key, resource_exhausted("Too many requests are waiting; try again later."));
    return true;
  }
  state_->router.submit_async(generate->request, std::make_shared<Sink<State>>(state_, key),
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
  return true;
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
  for (const std::uint64_t request : gone) state_->router.cancel(request);
}

}  // namespace troupe
