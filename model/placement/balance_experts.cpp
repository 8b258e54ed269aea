#include "model/placement/balance_experts.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <optional>
#include <queue>
#include <set>
#include <string>
#include <utility>

#include "model/placement/eplb.h"
#include "model/placement/expert_packs.h"
#include "model/placement/fewest_moves.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

bool good_row(const std::vector<float>& row, std::size_t experts) {
  return row.empty() || (row.size() == experts && std::all_of(row.begin(), row.end(), [](float w) {
                           return std::isfinite(w) && w >= 0;
                         }));
}

Status check_input(const BalanceInput& in) {
  if (in.devices.empty()) return invalid_argument("There is no device to place experts on.");
  if (std::set<DeviceRef>(in.devices.begin(), in.devices.end()).size() != in.devices.size())
    return invalid_argument("A device is named twice among those to place experts on.");
  if (in.num_experts < 1 || in.num_experts > limits::kExpertsMax) {
    return invalid_argument("The number of experts, " + std::to_string(in.num_experts) +
                            ", must be from 1 to " + std::to_string(limits::kExpertsMax) + ".");
  }
  if (in.copies < in.num_experts) {
    return invalid_argument("There are fewer slots (" + std::to_string(in.copies) +
                            ") than experts (" + std::to_string(in.num_experts) + ") in a layer.");
  }
  const auto layers = static_cast<std::int64_t>(in.layers.size());
  if (in.copies > kEplbEntriesMax / std::max<std::int64_t>(layers, 1)) {
    return invalid_argument(std::to_string(in.copies) + " copies in " + std::to_string(layers) +
                            " layers are more than the " + std::to_string(kEplbEntriesMax) +
                            " that a plan may have.");
  }
  if (in.num_groups < 1) return invalid_argument("The number of gate groups must be at least 1.");
  if (std::adjacent_find(in.layers.begin(), in.layers.end(), std::greater_equal<>()) !=
      in.layers.end())
    return invalid_argument("The layers to place experts of must be in ascending order.");
  if (!in.speeds.empty() && in.speeds.size() != in.devices.size())
    return invalid_argument("There must be one speed a device, or none at all.");
  for (const double speed : in.speeds) {
    if (!std::isfinite(speed) || speed <= 0)
      return invalid_argument("The speed of a device must be a finite number above 0.");
  }
  if (!in.weight.empty() && in.weight.size() != in.layers.size())
    return invalid_argument("There must be one row of expert loads a layer, or none at all.");
  for (std::size_t i = 0; i < in.weight.size(); ++i) {
    if (good_row(in.weight[i], static_cast<std::size_t>(in.num_experts))) continue;
    return invalid_argument("The expert loads of layer " + std::to_string(in.layers[i]) +
                            " must be one finite number an expert, none negative.");
  }
  if (!(in.tolerance >= 0)) return invalid_argument("The tolerance must not be negative.");
  return {};
}

class Balancer {
 public:
  explicit Balancer(const BalanceInput& input) : input_(input) {
    experts_ = static_cast<std::size_t>(input.num_experts);
    std::vector<std::pair<DeviceRef, double>> devices;
    for (std::size_t d = 0; d < input.devices.size(); ++d)
      devices.push_back({input.devices[d], input.speeds.empty() ? 1.0 : input.speeds[d]});
    std::sort(devices.begin(), devices.end());
    std::set<double> speeds;
    for (const auto& [device, speed] : devices) speeds.insert(speed);
    for (const auto& [device, speed] : devices) {
      if (devices_.empty() || devices_.back().node != device.node) ++packs_.nodes;
      devices_.push_back(device);
      packs_.node.push_back(packs_.nodes - 1);
      packs_.speed.push_back(speed);
      kinds_[device] = static_cast<std::int32_t>(std::distance(speeds.begin(), speeds.find(speed)));
    }
    copies_ = std::min(static_cast<std::size_t>(input.copies), experts_ * devices_.size());
    taken_.assign(devices_.size(), 0);
    for (const auto& layer : input.current) current_[layer.layer] = &layer;
    for (std::size_t i = 0; i < input.layers.size(); ++i) {
      auto row = input.weight.empty() ? std::vector<float>() : input.weight[i];
      const bool uniform = std::all_of(row.begin(), row.end(), [](float w) { return w == 0; });
      weight_.push_back(uniform ? std::vector<float>(experts_, 1) : std::move(row));
    }
  }

  Result<std::vector<LayerExperts>> balance() {
    std::optional<EplbPlan> published;
    if (published_fits() && !input_.layers.empty()) {
      auto plan = rebalance_experts({weight_, static_cast<std::int64_t>(copies_), input_.num_groups,
                                     static_cast<std::int64_t>(packs_.nodes),
                                     static_cast<std::int64_t>(devices_.size())});
      // Only a plan whose table would be absurd is refused here; ours caps an expert's copies.
      if (plan.ok()) published = std::move(*plan);
    }
    std::vector<LayerExperts> result;
    for (std::size_t i = 0; i < input_.layers.size(); ++i)
      result.push_back(balance_layer(i, published ? &*published : nullptr));
    return result;
  }

 private:
  bool grouped() const {
    return input_.num_groups % static_cast<std::int64_t>(packs_.nodes) == 0 && packs_.nodes > 1;
  }

  bool published_fits() const {
    if (copies_ % devices_.size() != 0) return false;
    if (devices_.size() % packs_.nodes != 0) return false;
    for (std::size_t n = 0; n < packs_.nodes; ++n) {
      if (std::count(packs_.node.begin(), packs_.node.end(), n) !=
          static_cast<std::ptrdiff_t>(devices_.size() / packs_.nodes))
        return false;
    }
    if (std::set<double>(packs_.speed.begin(), packs_.speed.end()).size() > 1) return false;
    return input_.num_groups % static_cast<std::int64_t>(packs_.nodes) != 0 ||
           experts_ % static_cast<std::size_t>(input_.num_groups) == 0;
  }

  /// Slots of each device in this layer: those with the fewest so far get the ceiling, of equals
  /// those that have more already.
  std::vector<std::size_t> share_out(const LayerExperts& current) const {
    const std::size_t n = devices_.size();
    std::map<DeviceRef, std::size_t> now;
    for (const auto& slot : current.slots) ++now[slot.device];
    std::vector<std::size_t> has(n, 0), order(n), room(n, copies_ / n);
    for (std::size_t d = 0; d < n; ++d) {
      const auto found = now.find(devices_[d]);
      if (found != now.end()) has[d] = found->second;
    }
    std::iota(order.begin(), order.end(), std::size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
      return taken_[a] != taken_[b] ? taken_[a] < taken_[b] : has[a] > has[b];
    });
    for (std::size_t i = 0; i < copies_ % n; ++i) ++room[order[i]];
    return room;
  }

  /// As the published replication, but no expert gets more copies than there are devices.
  std::vector<std::size_t> count_copies(const std::vector<float>& weight) const {
    std::vector<std::size_t> count(experts_, 1);
    using Load = std::pair<float, std::size_t>;
    const auto below = [](const Load& a, const Load& b) {
      return a.first != b.first ? a.first < b.first : a.second > b.second;
    };
    std::priority_queue<Load, std::vector<Load>, decltype(below)> loads(below);
    for (std::size_t e = 0; e < experts_; ++e) loads.push({weight[e], e});
    for (std::size_t more = copies_ - experts_; more > 0;) {
      const std::size_t e = loads.top().second;
      loads.pop();
      if (count[e] == devices_.size()) continue;
      ++count[e];
      --more;
      loads.push({weight[e] / static_cast<float>(count[e]), e});
    }
    return count;
  }

  ExpertPacks lay_out(std::size_t index, const EplbPlan* published,
                      const std::vector<std::size_t>& room) const {
    const auto& weight = weight_[index];
    if (published) {
      const auto& counts = published->logcnt[index];
      const auto most = *std::max_element(counts.begin(), counts.end());
      if (static_cast<std::size_t>(most) <= devices_.size()) {
        ExpertPacks packs(packs_, weight, {counts.begin(), counts.end()});
        for (std::size_t p = 0; p < copies_; ++p) {
          packs.put(static_cast<std::size_t>(published->phy2log[index][p]),
                    p / (copies_ / devices_.size()));
        }
        if (packs.separate()) return packs;
      }
    }
    ExpertPacks packs(packs_, weight, count_copies(weight));
    packs.pack(room);
    if (!packs.separate()) packs.deal(room);
    return packs;
  }

  LayerExperts balance_layer(std::size_t index, const EplbPlan* published) {
    const LayerExperts nothing{input_.layers[index], {}};
    const auto found = current_.find(input_.layers[index]);
    const LayerExperts& current = found == current_.end() ? nothing : *found->second;
    const auto room = share_out(current);
    ExpertPacks packs = lay_out(index, published, room);
    packs.spread();
    packs.even_out(published && grouped());
    FewestMoves best = fewest_moves(current, named(index, packs), kinds_);
    if (input_.tolerance > 0) {
      const double bound = packs.last_done() * (1 + input_.tolerance);
      // As many copies of each expert as now, and if that is not enough, as many as it should have.
      for (const auto& counts : {counts_now(current), count_copies(weight_[index])}) {
        if (counts.empty()) continue;
        ExpertPacks kept = keep(current, index, counts, room);
        if (!kept.separate()) continue;
        kept.spread();
        kept.even_out(false, bound);
        if (kept.last_done() > bound || kept.crowded() > packs.crowded()) continue;
        FewestMoves moves = fewest_moves(current, named(index, kept), kinds_);
        if (moves.changes.added.size() >= best.changes.added.size()) continue;
        best = std::move(moves);
        break;
      }
    }
    for (const auto& slot : best.layout.slots) ++taken_[*place_of(slot.device)];
    return std::move(best.layout);
  }

  LayerExperts named(std::size_t index, const ExpertPacks& packs) const {
    LayerExperts layer{input_.layers[index], {}};
    for (std::size_t d = 0; d < devices_.size(); ++d) {
      for (const std::size_t e : packs.on()[d])
        layer.slots.push_back({static_cast<std::int32_t>(e), devices_[d]});
    }
    return layer;
  }

  std::optional<std::size_t> place_of(const DeviceRef& device) const {
    const auto at = std::lower_bound(devices_.begin(), devices_.end(), device);
    if (at == devices_.end() || *at != device) return std::nullopt;
    return static_cast<std::size_t>(at - devices_.begin());
  }

  bool known(std::int32_t expert) const { return expert >= 0 && expert < input_.num_experts; }

  /// Copies of each expert now; empty if they do not fill a layer, or one has too many.
  std::vector<std::size_t> counts_now(const LayerExperts& current) const {
    std::vector<std::size_t> counts(experts_, 0);
    std::size_t total = 0;
    for (const auto& slot : current.slots) {
      if (!known(slot.expert) || !place_of(slot.device)) continue;
      ++counts[static_cast<std::size_t>(slot.expert)];
      ++total;
    }
    const auto [least, most] = std::minmax_element(counts.begin(), counts.end());
    if (total != copies_ || *least == 0 || *most > devices_.size()) return {};
    return counts;
  }

  /// The current copies as far as counts and room allow, those on nodes of their own first, and the
  /// missing ones packed.
  ExpertPacks keep(const LayerExperts& current, std::size_t index,
                   const std::vector<std::size_t>& counts,
                   const std::vector<std::size_t>& room) const {
    ExpertPacks packs(packs_, weight_[index], counts);
    std::vector<std::size_t> held(experts_, 0);
    std::set<std::pair<std::int32_t, std::size_t>> on_device, on_node;
    for (const bool own_node : {true, false}) {
      for (const auto& slot : current.slots) {
        const auto d = place_of(slot.device);
        if (!known(slot.expert) || !d || packs.on()[*d].size() >= room[*d]) continue;
        const auto expert = static_cast<std::size_t>(slot.expert);
        if (held[expert] >= counts[expert] || on_device.contains({slot.expert, *d})) continue;
        if (!on_node.insert({slot.expert, packs_.node[*d]}).second && own_node) continue;
        on_device.insert({slot.expert, *d});
        ++held[expert];
        packs.put(expert, *d);
      }
    }
    packs.pack(room);
    return packs;
  }

  const BalanceInput& input_;
  std::size_t experts_ = 0, copies_ = 0;
  std::vector<DeviceRef> devices_;  // ordered; indices below are into it
  PackDevices packs_;
  std::map<DeviceRef, std::int32_t> kinds_;
  std::map<std::int32_t, const LayerExperts*> current_;
  std::vector<std::vector<float>> weight_;
  std::vector<std::size_t> taken_;  // slots of each device in the layers so far
};

}  // namespace

Result<std::vector<LayerExperts>> balance_experts(const BalanceInput& input) {
  if (Status s = check_input(input); !s) return s.error();
  return Balancer(input).balance();
}

}  // namespace troupe
