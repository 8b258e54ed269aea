#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "actors/base/host.h"
#include "actors/device/device.h"
#include "actors/layer_shard/layer_shard_config.h"
#include "actors/layer_shard/messages.h"
#include "actors/layer_shard/shard_compute.h"
#include "transport/nccl/node.h"

namespace troupe {

class LayerShard;

/// Carries a LayerShard's own effects out: jobs in its device's queue, whose news come back as
/// StepCut and StepComputed. The compute, and with it what it claims of the device, is freed in the
/// device's queue after the last job; the shard's life ends then.
class ShardHands {
 public:
  /// `nccl`: what its ranks exchange with, if `config` says that they do.
  ShardHands(Host& host, const LayerShardConfig& config, Device& device,
             std::unique_ptr<ShardCompute> compute, const Life& life,
             const std::optional<nccl::Carrier>& nccl = std::nullopt);
  ShardHands(ShardHands&&) = default;
  ~ShardHands();

  void carry_out(BeginStep&& begin, const LayerShard& shard);
  void carry_out(ResumeStep&& resume, const LayerShard& shard);
  void carry_out(ReleaseStep&& release, const LayerShard& shard);
  void carry_out(GiveUpStep&& given_up, const LayerShard& shard);
  void carry_out(UseRoutes&& use, const LayerShard& shard);
  void carry_out(LoseRank&& lost, const LayerShard& shard);
  void carry_out(SayProgress&& say, const LayerShard& shard);

 private:
  template <class Work>
  void submit(StepId step, Work work);
  void end_of(std::function<void()> job);

  struct Seat;  // what jobs share: post, self, compute, life
  std::vector<DeviceRef> rank_devices_;
  Host* host_;
  Device* device_;
  std::shared_ptr<Seat> seat_;
};

}  // namespace troupe
