#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/node_agent/loader.h"
#include "actors/node_agent/serving.h"
#include "actors/node_agent/weight_store.h"
#include "actors/node_agent/worker_node.h"

namespace troupe {

using transport::PeerKey;

/// What is inside a WorkerNode: worker_node.cpp has its life and its lanes, worker_versions.cpp
/// what it does with versions of the placement.
struct WorkerNode::Impl : transport::FabricEvents {
  Impl(caf::actor_system& system, Post& post) : system(system), post(post) {}
  ~Impl() override;

  /// A version on its way from the disk to serving.
  struct Loading {
    NodeAgentActions::Work work;
    PlacementVersion version;
    Incarnation incarnation;  ///< of the membership
    ModelConfig model;
    LoadedPart weights;
    std::optional<Serving::Preparation> preparation;
    Status status;
  };
  using LoadingPtr = std::shared_ptr<Loading>;

  // --- Life ---
  Status start(WorkerOptions options, std::unique_ptr<HeadLink> head_link);
  NodeAgentOptions agent_options(const WorkerOptions& options) const;
  /// Has `work` done inside the NodeAgent's actor and its actions carried out.
  template <class Work>
  void tell(Work work) {
    (void)handle.call([this, work = std::move(work)]() mutable {
      NodeAgentActions actions;
      work(*agent, actions);
      carry_out(actions);
    });
  }

  // --- Inside the NodeAgent's actor ---
  void on_head_message(Envelope envelope);
  void on_wake();
  void carry_out(NodeAgentActions& actions);
  void carry_out_peers(const NodeAgentActions& actions);
  void joined(const NodeAgentActions::Joined& joined);
  void begin_load(NodeAgentActions::Work work);
  void start_actors(const LoadingPtr& loading);
  void finish_load(const LoadingPtr& loading);
  void fail_load(const LoadingPtr& loading, const Error& error);
  bool wanted(const Loading& loading) const;
  void activate(PlacementVersion version);
  void retire(PlacementVersion version);
  void stop_serving();
  NodeProgress progress();
  void once_a_second(NodeProgress& out);

  // --- On the loader's thread ---
  Status open_checkpoint(const std::string& folder);
  Status read_weights(Loading& loading, std::optional<PlacementVersion> active,
                      const std::atomic<bool>& cancelled);
  void settle_devices(const std::atomic<bool>& cancelled);

  // --- On the fabric's thread ---
  void on_frame(PeerKey from, transport::Frame frame) override;
  void on_peer_up(PeerKey peer) override;
  void on_peer_down(PeerKey peer, std::string reason) override;
  Status send_frame(PeerKey to, const Envelope& envelope);

  caf::actor_system& system;
  Post& post;
  int load_threads = 1;
  std::vector<std::unique_ptr<Device>> devices;
  std::unique_ptr<transport::Fabric> fabric;
  std::unique_ptr<WeightStore> weights;
  const std::shared_ptr<ExpertCounter> counter = std::make_shared<ExpertCounter>();
  std::unique_ptr<HeadLink> link;
  ActorHandle handle;
  Address member;  // its own, as long as the head had it for one

  // Touched inside the NodeAgent's actor only.
  std::unique_ptr<NodeAgent> agent;
  Address head;  // learnt from its first message
  std::unique_ptr<Serving> serving;  // of this membership, once something was placed here
  std::vector<ActorHandle> ending;
  std::set<DeviceRef> avoided;
  TimePoint next_second{};

  // Touched on the loader's thread only.
  std::shared_ptr<const Checkpoint> checkpoint;
  bool checkpoint_doubted = false;  // reading from it failed

  std::mutex mutex;
  std::condition_variable ended_changed;
  std::optional<Exit> ended;  // guarded by mutex
  /// Actors of earlier versions that have not given back yet what they held on the devices; guarded
  /// by mutex.
  std::vector<ActorHandle> unsettled;

  Loader loader;
  Loader cleaner;  // frees what is let go, which takes a while for many GiB
};

}  // namespace troupe
