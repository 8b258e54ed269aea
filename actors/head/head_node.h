#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/base/caf_host.h"
#include "actors/control/credentials.h"
#include "actors/control/head_link.h"
#include "actors/frontend/generation_service.h"
#include "actors/frontend/model_frontend.h"
#include "actors/gateway/gateway.h"
#include "actors/head/state_keeper.h"
#include "actors/metrics/metrics.h"
#include "actors/supervisor/supervisor_effects.h"
#include "model/checkpoint.h"
#include "runtime/engine_options.h"
#include "runtime/standby_limits.h"

namespace troupe {

struct HeadOptions {
  std::string version;
  EngineOptions engine;
  std::shared_ptr<const Checkpoint> checkpoint;  ///< engine.model, if it is open already
  std::shared_ptr<const ModelFrontend> frontend;  ///< of the same, if it is loaded already
  std::string cluster_id;
  Incarnation incarnation;  ///< larger than any earlier life's; see first_incarnation()
  /// What to run on a worker, given where the head listens. Called once, before the head answers
  /// over HTTP: whoever sees it there can run the line at once. An error ends the start.
  std::function<Result<std::string>(const HostPort&)> join_line;
  /// How long workers keep what they have when this head is gone.
  std::chrono::seconds keep_for = limits::kKeepFor;
  std::uint32_t next_node = 1;  ///< the next new worker's id, as the keeper was last given it
  std::shared_ptr<StateKeeper> keeper;  ///< null: nothing is kept for a next life
  /// Has whoever listens there told that this head goes on, and hears what it says, if it answers
  /// (actors/standby/standby_asker.h). None: nobody follows this head.
  using Ask = std::function<void(const AskStandby&, std::function<void(StandbyAnswered)>)>;
  Ask ask_standby;
  std::string journal_folder;  ///< where accepted requests are kept for it; empty: nowhere
  /// The control lane's listener; none for a cluster within one process.
  std::optional<HostPort> listen;
  Credentials credentials;
  EnrolmentDoor enrol;  ///< for workers that have a token; none: nobody may
  /// The HTTP API; none for an embedded cluster.
  std::optional<GatewayOptions> gateway;
  std::function<void(std::span<const TokenOutput>)> on_tokens;  ///< see Router::Options
};

/// The head: Supervisor, Router and Gateway, and the sessions of workers and clients.
class HeadNode : public ClusterView {
 public:
  /// Reads the model's configuration and tokenizer, then listens. `host` must outlive it.
  static Result<std::unique_ptr<HeadNode>> start(CafHost& host, HeadOptions options);
  /// Ends everything at once, if stop() has not been waited for.
  ~HeadNode() override;

  GenerationService& service();
  const ModelFrontend& frontend() const;
  Metrics& metrics();
  std::string http_url() const;  ///< empty without a gateway

  /// A worker's way in from within this process.
  std::unique_ptr<HeadLink> make_local_link();

  // ClusterView
  std::string status_json() const override;
  std::string refuses() const override;

  bool ready() const;         ///< whether it can serve
  std::string state() const;  ///< forming, loading, ready, degraded or stopping

  /// Cluster events, from the Supervisor's actor, until the head ends; must not block.
  void subscribe(std::function<void(const ClusterEvent&)> listener);

  /// Waits until requests can be served; false when `patience` passed first.
  bool wait_ready(Duration patience) const;
  /// Why it cannot serve although devices are here: kResourceExhausted or kInvalidArgument if the
  /// devices that are here are no use to it, kUnavailable for what may pass (weights that cannot be
  /// loaded, a member lost). None while it forms, loads or serves.
  std::optional<Error> trouble() const;
  /// Whether Supervisor and Router take their turns; asks them, and waits for each for
  /// limits::kRouterAnswerDeadline at most.
  bool takes_turns() const;
  /// Devices that are here.
  std::size_t devices() const;
  /// Where its standby listens that has become the head; empty: none has.
  std::string deposed_by() const;
  /// Other credentials for control sessions that begin from now on. kInvalidArgument. Any thread.
  Status use(const Credentials& credentials);
  /// Has the cluster's events, which status shows, tell something more. Any thread.
  void note(const std::string& kind, const std::string& text);
  /// Ends the cluster in order: answers finish briefly, workers leave, then wait() returns. Any
  /// thread.
  void stop(const std::string& reason);
  /// Ends this head alone, and nobody is told: clients find their connections closed, workers seek
  /// the next head with what they serve, and that goes on with what is in the journal. What is left
  /// is the destructor's. Any thread.
  void leave();
  /// Waits until the cluster has ended, or this head has left; false when `patience` passed first.
  bool wait(Duration patience);

 private:
  struct Impl;
  explicit HeadNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
