#pragma once

#include <functional>
#include <memory>

#include "actors/api/generation.h"
#include "actors/company/actor_shell.h"
#include "actors/company/post.h"
#include "actors/frontend/model_frontend.h"
#include "actors/metrics/metrics.h"
#include "actors/metrics/request_window.h"
#include "actors/router/router.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// The Router's actor, and the doors' way to it: prepares requests in the caller's thread, hands
/// them to the machine, and its deliveries to the sinks.
///
///     door ── submit ──► prepare ──► Router ──► Replica
///      ▲                               │
///      └────── sink ◄── deliveries ◄───┘
class RouterActor : public GenerationService {
 public:
  struct Options {
    Address self;
    std::shared_ptr<const ModelFrontend> frontend;
    Metrics* metrics = nullptr;  ///< may be null
    std::function<std::uint64_t()> random_seed;
  };
  /// `system`, `post` and the metrics must outlive it.
  RouterActor(caf::actor_system& system, Post& post, Options options);
  /// Ends the actor; sinks of unfinished requests get a kCancelled error.
  ~RouterActor() override;

  Result<std::uint64_t> submit(GenerationRequest request,
                               std::shared_ptr<GenerationSink> sink) override;
  /// As submit, without waiting for the Router: `accepted` is called from its actor, once, before
  /// any event. For callers that must not block.
  void submit_async(GenerationRequest request, std::shared_ptr<GenerationSink> sink,
                    std::function<void(Result<std::uint64_t>)> accepted);
  void cancel(std::uint64_t request) override;

  // As those of the Router; any thread.
  void on_replicas(PlacementVersion version, std::vector<ReplicaEndpoint> replicas);
  void on_replicas_lost(std::vector<std::uint32_t> replicas, std::string why);
  void set_admission(bool waits, std::string why);
  void stop(std::string why);

  RequestCounts counts() const;  ///< the newest; any thread
  RequestRates rates() const;    ///< of the last ten seconds; any thread
  /// The oldest requests that are not over, as they were a moment ago; any thread.
  std::vector<RequestSummary> list() const;
  const ModelFrontend& frontend() const;

 private:
  struct State;
  static void cancel_in(const std::shared_ptr<State>& state, std::uint64_t request);
  std::shared_ptr<State> state_;
};

}  // namespace troupe
