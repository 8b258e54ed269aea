#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "actors/head/session_hub.h"
#include "actors/router/request_door.h"
#include "runtime/job_queue.h"

namespace troupe {

/// Serves programs that generate over a session: each ClientGenerate becomes a request of the
/// Router, each of its events a ClientGeneration. Requests of a session that ends are cancelled.
///
///     SessionHub ─► queue ─► RequestDoor ─► Router
///         ▲                                   │
///         └──────────────── Sink ◄────────────┘
class ClientDoor final : public SessionHub::Clients {
 public:
  using Send = std::function<Status(std::uint32_t session, ClientGeneration)>;
  /// `requests` must outlive it, and be closed before its end: it calls this door's sinks.
  ClientDoor(RequestDoor& requests, Send send);

  // SessionHub::Clients
  void on_request(std::uint32_t session, MessagePtr message) override;
  void on_session_down(std::uint32_t session) override;

  /// From now on it asks for nothing more; what the Router still says is sent.
  void close() { queue_.end(); }

 private:
  using Key = std::pair<std::uint32_t, std::uint64_t>;  // session, query
  class Sink;
  void add(std::function<void()> job);
  void generate(const Key& key, const GenerationRequest& request);
  void accepted(const Key& key, const Result<AcceptedRequest>& answer);
  void cancel(const Key& key);
  void cancel_all(std::uint32_t session);
  void event(const Key& key, GenerationEvent event);
  void fail(const Key& key, Error error);

  RequestDoor& requests_;
  const Send send_;
  std::mutex mutex_;
  std::map<Key, std::uint64_t> numbers_;  // guarded by mutex_; 0 until it is accepted
  /// Reading a long prompt takes time, which a lane's thread does not have: leases depend on it.
  JobQueue queue_;  // last: its jobs use everything above
};

}  // namespace troupe
