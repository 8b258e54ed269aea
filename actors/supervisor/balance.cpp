#include "actors/supervisor/balance.h"

#include <algorithm>

#include "actors/supervisor/times.h"

namespace troupe {
namespace {

/// Tokens that must have been counted before their spread means anything.
constexpr std::uint64_t kTokensToJudge = 10'000;
/// Experts get a new layout when the busiest device has this much more than the mean, and the new
/// layout takes away at least this share of the excess.
constexpr double kImbalanceMax = 1.25;
constexpr double kGainMin = 0.25;

}  // namespace

void ExpertBalance::ask(const Placement& active) {
  asked_ = true;
  for (const auto& layer : active.experts) layers_left_.insert(layer.layer);
}

bool ExpertBalance::check(const Placement& active, TimePoint now, SupervisorEffects& effects) {
  next_check_ = now + kBalanceCheckEvery;
  const auto tokens = load_.tokens();
  const bool judge = load_.total() >= kTokensToJudge && now >= next_;
  for (const auto& layer : active.experts) {
    const auto load = tokens.find(layer.layer);
    if (load == tokens.end()) continue;
    const double imbalance = imbalance_of(layer, load->second);
    if (imbalance > 0) effects.add(ImbalanceMeasured{layer.layer, imbalance});
    if (judge && imbalance >= kImbalanceMax) layers_left_.insert(layer.layer);
  }
  if (layers_left_.empty()) return false;
  next_ = now + kBalanceEvery;
  return true;
}

std::set<std::int32_t> ExpertBalance::take_layers(std::size_t most) {
  std::set<std::int32_t> taken;
  while (!layers_left_.empty() && taken.size() < most)
    taken.insert(layers_left_.extract(layers_left_.begin()));
  return taken;
}

void ExpertBalance::keep_what_helps(const Placement& active, const std::set<DeviceRef>& leaving,
                                    Placement& goal, std::set<std::int32_t>& layers) const {
  const auto tokens = load_.tokens();
  for (std::size_t l = 0; l < goal.experts.size() && l < active.experts.size(); ++l) {
    LayerExperts& layer = goal.experts[l];
    const LayerExperts& now = active.experts[l];
    const auto load = tokens.find(layer.layer);
    if (layer.layer != now.layer || !layers.contains(layer.layer)) continue;
    const double before = load == tokens.end() ? 1 : imbalance_of(now, load->second);
    const double after = load == tokens.end() ? 1 : imbalance_of(layer, load->second);
    const double gain = asked_ ? 1e-6 : kGainMin * (before - 1);
    if (before - after >= gain || now.slots.size() != layer.slots.size()) continue;
    if (std::any_of(now.slots.begin(), now.slots.end(),
                    [&](const ExpertSlot& slot) { return leaving.contains(slot.device); }))
      continue;
    layer = now;
    layers.erase(layer.layer);
  }
}

}  // namespace troupe
