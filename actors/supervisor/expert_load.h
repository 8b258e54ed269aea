#pragma once

#include <cstdint>
#include <map>
#include <vector>

#include "model/placement/model_costs.h"
#include "runtime/clock.h"
#include "runtime/placement.h"
#include "transport/message.h"

namespace troupe {

/// How many tokens each expert got lately: a window that moves in halves, so that what is older
/// than one to two `kHalf` is forgotten.
class ExpertLoad {
 public:
  static constexpr auto kHalf = std::chrono::seconds(30);

  /// Counts of layers and experts that the model does not have are left out.
  void add(const ExpertCounts& counts, const ModelCosts& model, TimePoint now);
  /// Tokens by expert of each layer that had any.
  std::map<std::int32_t, std::vector<float>> tokens() const;
  std::uint64_t total() const;

 private:
  using Layers = std::map<std::int32_t, std::vector<std::uint64_t>>;
  Layers older_, newer_;
  TimePoint turned_{};
};

/// The load of a layer's busiest device over the mean: 1 is perfect. An expert's tokens are shared
/// by its copies. 0 when nothing was counted.
double imbalance_of(const LayerExperts& layer, const std::vector<float>& tokens);
/// The mean over the layers that were counted.
double imbalance_of(const std::vector<LayerExperts>& layers,
                    const std::map<std::int32_t, std::vector<float>>& tokens);

}  // namespace troupe
