#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "actors/company/actor_shell.h"
#include "actors/company/post.h"
#include "actors/device/device.h"
#include "model/expert_forward.h"

namespace caf {
class actor_system;
}

namespace troupe {

/// The routed experts of one device, as seen by shards elsewhere. While the device computes,
/// questions gather; the next pass takes everything that waits for a layer at once, whichever
/// replicas it came from, so that weights are read once. No row's result depends on what it was
/// grouped with.
///
///     Dispatch ─┐
///     Dispatch ─┼─► waiting ──one job──► pass a layer ──► ExpertOutput each, or NotHere
///     Dispatch ─┘
class ExpertGroup : public std::enable_shared_from_this<ExpertGroup> {
 public:
  ExpertGroup(const ModelConfig& model, Numerics numerics, Address self, Post& post,
              Device& device);

  /// Takes a Dispatch, and the news that an answer could not be delivered. Bounded by
  /// limits::kDispatchesWaitingMax: beyond it the answer is NotHere, so that the asker tries
  /// another copy.
  void on(const Envelope& envelope);

 private:
  void schedule();  // mutex_ held
  void run_waiting();
  void run_layer(std::int32_t layer, const std::vector<Envelope>& questions);
  void answer_not_here(const Envelope& question, std::vector<std::int32_t> experts,
                       const std::string& reason);

  const std::size_t row_bytes_;
  const Address self_;
  Post& post_;
  Device& device_;
  ExpertForward forward_;  // on the device's thread only

  std::mutex mutex_;
  std::vector<Envelope> waiting_;  // guarded by mutex_
  bool scheduled_ = false;         // guarded by mutex_
};

ActorHandle spawn_expert_group(caf::actor_system& system, std::shared_ptr<ExpertGroup> group);

}  // namespace troupe
