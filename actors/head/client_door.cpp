#include "actors/head/client_door.h"

#include <vector>

#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {

class ClientDoor::Sink : public GenerationSink {
 public:
  Sink(ClientDoor& door, Key key) : door_(door), key_(key) {}
  void on_event(GenerationEvent event) override { door_.event(key_, std::move(event)); }

 private:
  ClientDoor& door_;
  const Key key_;
};

ClientDoor::ClientDoor(RequestDoor& requests, Send send)
    : requests_(requests), send_(std::move(send)), queue_(limits::kMailboxMax) {}

// --- Sessions ask -------------------------------------------------------------------------------

void ClientDoor::add(std::function<void()> job) {
  const Status queued = queue_.add(std::move(job));
  if (!queued.ok() && queued.error().code == ErrorCode::kResourceExhausted)
    logger().warn("a client's request was dropped: {}", queued.error().message);
}

void ClientDoor::on_request(std::uint32_t session, MessagePtr message) {
  add([this, session, message = std::move(message)] {
    if (const auto* query = std::get_if<ClientCancel>(message.get()))
      cancel({session, query->query});
    else if (const auto* query = std::get_if<ClientGenerate>(message.get()))
      generate({session, query->query}, query->request);
  });
}

/// In order with what the session asked for before.
void ClientDoor::on_session_down(std::uint32_t session) {
  add([this, session] { cancel_all(session); });
}

void ClientDoor::generate(const Key& key, const GenerationRequest& request) {
  // They may be more than a frame of the control lane holds.
  if (request.pooling == Pooling::kAll)
    return fail(key, invalid_argument("pooling: a client gets the last token's hidden state only; "
                                      "ask for all over HTTP (POST /pooling)."));
  bool full = false;
  {
    std::lock_guard lock(mutex_);
    // A query's number that is in use: an answer would end the other one.
    if (numbers_.contains(key)) return;
    full = numbers_.size() >= limits::kRequestsMax;
    if (!full) numbers_.emplace(key, 0);
  }
  if (full)
    return fail(key, resource_exhausted("Too many requests are waiting; try again later."));
  requests_.submit_async(
      request, std::make_shared<Sink>(*this, key),
      [this, key](const Result<AcceptedRequest>& answer) { accepted(key, answer); });
}

void ClientDoor::accepted(const Key& key, const Result<AcceptedRequest>& answer) {
  if (!answer.ok()) return fail(key, answer.error());
  const std::uint64_t number = answer->reader;
  bool wanted = false;
  {
    std::lock_guard lock(mutex_);
    const auto it = numbers_.find(key);
    wanted = it != numbers_.end();
    if (wanted) it->second = number;
  }
  if (!wanted) requests_.cancel(number);
}

void ClientDoor::cancel(const Key& key) {
  std::uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    const auto it = numbers_.find(key);
    if (it == numbers_.end()) return;
    number = it->second;
    // The Router has not said yes yet: when it does, the missing entry says that nobody wants it.
    if (number == 0) numbers_.erase(it);
  }
  if (number != 0) requests_.cancel(number);
}

void ClientDoor::cancel_all(std::uint32_t session) {
  std::vector<std::uint64_t> gone;
  {
    std::lock_guard lock(mutex_);
    std::erase_if(numbers_, [&](const auto& entry) {
      if (entry.first.first != session) return false;
      if (entry.second != 0) gone.push_back(entry.second);
      return true;
    });
  }
  for (const std::uint64_t number : gone) requests_.cancel(number);
}

// --- The Router answers -------------------------------------------------------------------------

void ClientDoor::event(const Key& key, GenerationEvent event) {
  const bool last = event.request_done || event.error;
  const bool failed = event.error.has_value();
  std::uint64_t number = 0;
  {
    std::lock_guard lock(mutex_);
    const auto it = numbers_.find(key);
    if (it != numbers_.end()) {
      number = it->second;
      if (last) numbers_.erase(it);
    }
  }
  const Status sent = send_(key.first, ClientGeneration{key.second, std::move(event)});
  if (sent.ok() || failed) return;
  // What the lane does not take, such as log-probabilities of a very long prompt, must not leave
  // the client waiting.
  fail(key, sent.error());
  if (!last && number != 0) requests_.cancel(number);
}

void ClientDoor::fail(const Key& key, Error error) {
  {
    std::lock_guard lock(mutex_);
    numbers_.erase(key);
  }
  ClientGeneration answer{key.second, {}};
  answer.event.error = std::move(error);
  (void)send_(key.first, std::move(answer));
}

}  // namespace troupe
