#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <utility>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/node_agent/messages.h"
#include "actors/worker/compute_factory.h"
#include "model/forward/experts.h"
#include "runtime/ids.h"

namespace troupe {

/// The process's arithmetic: forward passes of a checkpoint's model. Specs name a CheckpointModel.
class ModelFactory final : public ComputeFactory {
 public:
  struct Options {
    std::vector<CpuDevice*> devices;  ///< by their index; they must outlive what is made
    /// Hears of each copy that is made of a piece: it is to be looked at, too.
    std::function<void(const PieceTensors&)> copied = [](const PieceTensors&) {};
    std::optional<TokenId> crash_token = {};
  };
  explicit ModelFactory(Options options)
      : options_(std::move(options)), experts_(options_.devices.size()) {}

  Result<std::unique_ptr<ShardCompute>> make_shard(ShardSpec spec) override;
  Result<MadePass> make_pass(const PassSpec& spec) override;
  Result<ExpertSet::Map> place(Device& device, ExpertSet::Map experts) override;

 private:
  Result<std::unique_ptr<ShardCompute>> make_shard_on(CpuDevice& device, ShardSpec spec);
  std::shared_ptr<ExpertForward> experts_on(const std::shared_ptr<const ModelSpec>& model,
                                            Numerics numerics, CpuDevice& device);

  /// What passes on a device compute with, as long as an actor there uses it.
  struct Experts {
    std::weak_ptr<const ModelSpec> model;
    Numerics numerics = Numerics::kReference;
    std::weak_ptr<ExpertForward> forward;
  };
  /// Copies in a device's memory, of weights that the node holds elsewhere: another device serves
  /// them too, or they were of the second tier. Versions that have the same share them.
  template <class Weights>
  class Copies {
   public:
    explicit Copies(const Options& options) : options_(options) {}
    Result<std::shared_ptr<const Weights>> of(const std::shared_ptr<const Weights>& weights,
                                              CpuDevice& device);
    /// Those that nobody has any more.
    void forget();

   private:
    struct Copy {
      std::weak_ptr<const Weights> held, there;
    };
    const Options& options_;
    std::mutex mutex_;
    std::map<std::pair<std::uint32_t, const Weights*>, Copy> copies_;  // guarded by mutex_
  };

  const Options options_;
  Copies<ShardWeights> shard_copies_{options_};
  Copies<ExpertWeights> expert_copies_{options_};
  std::mutex mutex_;
  std::vector<Experts> experts_;  // guarded by mutex_; by device
};

}  // namespace troupe
