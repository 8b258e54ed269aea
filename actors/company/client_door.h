#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>

#include "actors/router/router_actor.h"

namespace troupe {

/// Serves programs that generate over a control session: each ClientGenerate becomes a request of
/// the Router, each of its events a ClientGeneration. Requests of a session that ends are
/// cancelled.
class ClientDoor {
 public:
  using Send = std::function<Status(std::uint32_t session, ClientGeneration)>;
  ClientDoor(RouterActor& router, Send send);

  /// ClientGenerate and ClientCancel.
  static bool takes(const Message& message);
  /// Handles what it takes. Tokenises the prompt: not for a thread that others wait for.
  void on(std::uint32_t session, const Message& message);
  void session_down(std::uint32_t session);
  /// From now on the Router is not called any more, so that it may end; what it still says is sent.
  void close();

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // session, query
  struct State;
  void cancel(const Key& key);
  void generate(const Key& key, const GenerationRequest& request);

  std::shared_ptr<State> state_;
};

}  // namespace troupe
