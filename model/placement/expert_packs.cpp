#include "model/placement/expert_packs.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <limits>
#include <numeric>
#include <optional>

namespace troupe {
namespace {

/// Swaps weighed for one layer: some hundred milliseconds. Real layers need a hundredth; it keeps
/// absurd ones from holding up the head.
constexpr std::int64_t kLooksMax = 1 << 23;
/// A swap that brings less than this share of the time is noise of the arithmetic.
constexpr double kWorthwhile = 1e-9;

}  // namespace

ExpertPacks::ExpertPacks(const PackDevices& devices, const std::vector<float>& load,
                         const std::vector<std::size_t>& copies)
    : devices_(devices),
      copies_(copies),
      on_(devices.node.size()),
      holders_(load.size()),
      load_(devices.node.size(), 0),
      looks_left_(kLooksMax) {
  for (std::size_t e = 0; e < load.size(); ++e)
    share_.push_back(static_cast<double>(load[e]) / static_cast<double>(copies[e]));
}

void ExpertPacks::put(std::size_t expert, std::size_t device) {
  on_[device].push_back(expert);
  holders_[expert].push_back(device);
  load_[device] += share_[expert];
}

void ExpertPacks::pack(const std::vector<std::size_t>& room) {
  std::vector<std::size_t> order(share_.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return share_[a] > share_[b]; });
  for (const std::size_t expert : order) {
    while (holders_[expert].size() < copies_[expert]) {
      std::optional<std::size_t> best;
      int best_near = 0;
      double best_time = 0;
      for (std::size_t d = 0; d < on_.size(); ++d) {
        if (on_[d].size() >= room[d]) continue;
        const int near = has(d, expert) ? 2 : on_node(expert, devices_.node[d]) > 0 ? 1 : 0;
        const double done = (load_[d] + share_[expert]) / devices_.speed[d];
        if (best && (near != best_near ? near > best_near : done >= best_time)) continue;
        best = d;
        best_near = near;
        best_time = done;
      }
      assert(best);
      put(expert, *best);
    }
  }
}

void ExpertPacks::deal(const std::vector<std::size_t>& room) {
  for (auto& experts : on_) experts.clear();
  for (auto& holders : holders_) holders.clear();
  std::fill(load_.begin(), load_.end(), 0.0);
  // Devices with a slot more come first: the last round, which is not full, is theirs.
  std::vector<std::size_t> order(room.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](std::size_t a, std::size_t b) { return room[a] > room[b]; });
  std::size_t turn = 0;
  for (std::size_t expert = 0; expert < copies_.size(); ++expert) {
    for (std::size_t copy = 0; copy < copies_[expert]; ++copy)
      put(expert, order[turn++ % order.size()]);
  }
}

bool ExpertPacks::has(std::size_t device, std::size_t expert) const {
  const auto& holders = holders_[expert];
  return std::find(holders.begin(), holders.end(), device) != holders.end();
}

std::size_t ExpertPacks::on_node(std::size_t expert, std::size_t node) const {
  std::size_t count = 0;
  for (const std::size_t d : holders_[expert]) count += devices_.node[d] == node ? 1 : 0;
  return count;
}

std::size_t ExpertPacks::nodes_of(std::size_t expert) const {
  std::vector<std::size_t> nodes;
  for (const std::size_t d : holders_[expert]) nodes.push_back(devices_.node[d]);
  std::sort(nodes.begin(), nodes.end());
  return static_cast<std::size_t>(std::unique(nodes.begin(), nodes.end()) - nodes.begin());
}

bool ExpertPacks::may_swap(const Place& a, const Place& b) const {
  return a.device != b.device && !has(b.device, expert_at(a)) && !has(a.device, expert_at(b));
}

ExpertPacks::Swap ExpertPacks::weigh(const Place& a, const Place& b) const {
  Swap swap{a, b, 0, 0};
  const std::size_t from = devices_.node[a.device], to = devices_.node[b.device];
  const std::size_t x = expert_at(a), y = expert_at(b);
  if (from != to) {
    swap.gain += (on_node(x, to) == 0) - (on_node(x, from) == 1);
    swap.gain += (on_node(y, from) == 0) - (on_node(y, to) == 1);
  }
  const double shift = share_[x] - share_[y];
  const double before_a = time(a.device), before_b = time(b.device);
  const double after_a = (load_[a.device] - shift) / devices_.speed[a.device];
  const double after_b = (load_[b.device] + shift) / devices_.speed[b.device];
  swap.cost = after_a * after_a + after_b * after_b - before_a * before_a - before_b * before_b;
  return swap;
}

void ExpertPacks::swap(const Place& a, const Place& b) {
  const std::size_t x = expert_at(a), y = expert_at(b);
  *std::find(holders_[x].begin(), holders_[x].end(), a.device) = b.device;
  *std::find(holders_[y].begin(), holders_[y].end(), b.device) = a.device;
  std::swap(on_[a.device][a.slot], on_[b.device][b.slot]);
  for (const std::size_t d : {a.device, b.device}) {  // summed again: nothing drifts
    load_[d] = 0;
    for (const std::size_t e : on_[d]) load_[d] += share_[e];
  }
}

bool ExpertPacks::separate_copy(const Place& copy) {
  std::optional<Swap> best;
  for (std::size_t d = 0; d < on_.size(); ++d) {
    for (std::size_t s = 0; s < on_[d].size(); ++s) {
      const Place other{d, s};
      if (!may_swap(copy, other)) continue;
      const Swap swap = weigh(copy, other);
      if (!best || better(swap, *best)) best = swap;
    }
  }
  if (best) swap(best->a, best->b);
  return best.has_value();
}

bool ExpertPacks::separate() {
  for (std::size_t d = 0; d < on_.size(); ++d) {
    for (std::size_t s = 0; s < on_[d].size(); ++s) {
      const std::size_t expert = on_[d][s];
      if (std::count(holders_[expert].begin(), holders_[expert].end(), d) < 2) continue;
      if (!separate_copy({d, s})) return false;
    }
  }
  return true;
}

bool ExpertPacks::spread_expert(std::size_t expert) {
  std::optional<Swap> best;
  for (const std::size_t device : holders_[expert]) {
    if (on_node(expert, devices_.node[device]) < 2) continue;
    const auto slot = std::find(on_[device].begin(), on_[device].end(), expert);
    const Place place{device, static_cast<std::size_t>(slot - on_[device].begin())};
    for (std::size_t d = 0; d < on_.size(); ++d) {
      if (on_node(expert, devices_.node[d]) > 0) continue;
      for (std::size_t s = 0; s < on_[d].size() && looks_left_ > 0; ++s) {
        --looks_left_;
        if (!may_swap(place, {d, s})) continue;
        const Swap swap = weigh(place, {d, s});
        if (swap.gain > 0 && (!best || better(swap, *best))) best = swap;
      }
    }
  }
  if (best) swap(best->a, best->b);
  return best.has_value();
}

void ExpertPacks::spread() {
  // Every swap adds to the nodes that experts are on, so it ends. An expert whose turn has passed
  // may find a partner later, when others have moved.
  for (bool changed = true; changed && looks_left_ > 0;) {
    changed = false;
    for (std::size_t expert = 0; expert < holders_.size(); ++expert) {
      const std::size_t reachable = std::min(copies_[expert], devices_.nodes);
      while (nodes_of(expert) < reachable && spread_expert(expert)) changed = true;
    }
  }
}

/// The best swap of the device that is done last with any other; false if none helps it.
bool ExpertPacks::relieve(const std::vector<std::size_t>& devices) {
  const std::size_t last =
      *std::max_element(devices.begin(), devices.end(),
                        [&](std::size_t a, std::size_t b) { return time(a) < time(b); });
  const double least = -kWorthwhile * time(last) * time(last);
  std::optional<Swap> best;
  for (std::size_t slot = 0; slot < on_[last].size(); ++slot) {
    for (const std::size_t d : devices) {
      for (std::size_t s = 0; s < on_[d].size() && looks_left_ > 0; ++s) {
        const double shift = share_[on_[last][slot]] - share_[on_[d][s]];
        --looks_left_;
        // The other one may not become the last to be done in its place.
        if (shift <= 0 || (load_[d] + shift) / devices_.speed[d] >= time(last)) continue;
        if (!may_swap({last, slot}, {d, s})) continue;
        const Swap swap = weigh({last, slot}, {d, s});
        if (swap.gain < 0 || swap.cost >= least) continue;
        if (!best || swap.cost < best->cost) best = swap;
      }
    }
  }
  if (best) swap(best->a, best->b);
  return best.has_value();
}

void ExpertPacks::even_out(bool within_nodes, double done_by) {
  std::vector<std::vector<std::size_t>> scopes(within_nodes ? devices_.nodes : 1);
  for (std::size_t d = 0; d < on_.size(); ++d)
    scopes[within_nodes ? devices_.node[d] : 0].push_back(d);
  for (const auto& scope : scopes) {
    while (!scope.empty() && looks_left_ > 0 && last_done() > done_by && relieve(scope)) continue;
  }
}

double ExpertPacks::last_done() const {
  double last = 0;
  for (std::size_t d = 0; d < on_.size(); ++d) last = std::max(last, time(d));
  return last;
}

std::size_t ExpertPacks::crowded() const {
  std::size_t count = 0;
  for (std::size_t e = 0; e < holders_.size(); ++e)
    count += nodes_of(e) < std::min(copies_[e], devices_.nodes) ? 1 : 0;
  return count;
}

}  // namespace troupe
