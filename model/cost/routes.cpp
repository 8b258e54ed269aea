#include "model/cost/routes.h"

#include <algorithm>
#include <cmath>

namespace troupe {

namespace {

/// What a row asks of a slot: the chance, and the logarithm of the chance that it does not, which
/// is minus infinity where every row asks.
struct Ask {
  double chance = 0, log_not = 0;
};
Ask ask_of(double chance) { return {chance, std::log1p(-chance)}; }

}  // namespace

/// Devices have numbers here: clusters have thousands, and each asks each.
struct LayerRoutes::Table {
  struct Slot {
    std::size_t device = 0, expert = 0;
    std::size_t of_device = 0;  ///< its place among the device's
  };
  Table(const LayerExperts& layer, const ExpertChances& chances,
        std::map<DeviceRef, Part>& parts_by_device) {
    for (auto& [device, part] : parts_by_device) {
      number[device] = devices.size();
      devices.push_back(device);
      parts.push_back(&part);
    }
    std::vector<double> copies(chances.size(), 0);
    for (const ExpertSlot& s : layer.slots) {
      const auto expert = static_cast<std::size_t>(s.expert);
      Part& part = *parts[number[s.device]];
      slots.push_back({number[s.device], expert, part.log_unasked.size()});
      part.log_unasked.push_back(0);
      copies[expert] += 1;
    }
    for (std::size_t e = 0; e < chances.size(); ++e) {
      whole.push_back(ask_of(chances[e]));
      shared.push_back(copies[e] > 0 ? ask_of(chances[e] / copies[e]) : Ask{});
    }
  }

  std::map<DeviceRef, std::size_t> number;
  std::vector<DeviceRef> devices;
  std::vector<Part*> parts;
  std::vector<Slot> slots;
  std::vector<Ask> whole, shared;  ///< of each expert: of its only asked copy, of each of them
};

LayerRoutes::LayerRoutes(const LayerExperts& layer, const ExpertChances& chances,
                         const std::vector<DeviceRef>& askers) {
  for (const ExpertSlot& slot : layer.slots) parts_[slot.device];
  for (const DeviceRef& asker : askers) parts_[asker];
  const Table table(layer, chances, parts_);
  for (const DeviceRef& asker : askers) ask(table, table.number.at(asker));
}

void LayerRoutes::ask(const Table& table, std::size_t asker) {
  std::vector<bool> own(table.whole.size(), false);
  for (const Table::Slot& s : table.slots)
    if (s.device == asker) own[s.expert] = true;
  std::vector<Ask> asked(table.devices.size());  // of each device: pairs, and that none is asked
  for (const Table::Slot& s : table.slots) {
    if (own[s.expert] && s.device != asker) continue;
    const Ask& slot = own[s.expert] ? table.whole[s.expert] : table.shared[s.expert];
    table.parts[s.device]->log_unasked[s.of_device] += slot.log_not;
    asked[s.device].chance += slot.chance;
    asked[s.device].log_not += slot.log_not;
  }
  Part& from = *table.parts[asker];
  for (std::size_t d = 0; d < asked.size(); ++d) {
    Part& to = *table.parts[d];
    const double pairs = asked[d].chance;
    to.pairs += pairs;
    if (d == asker || pairs <= 0) continue;
    const double rows = 1 - std::exp(asked[d].log_not);
    const bool near = table.devices[d].node == table.devices[asker].node;
    (near ? from.near_rows_out : from.rows_out) += rows;
    (near ? to.near_rows_in : to.rows_in) += rows;
    (near ? to.near_pairs_out : to.pairs_out) += pairs;
    (near ? from.near_pairs_in : from.pairs_in) += pairs;
    from.questions += rows;
  }
}

double LayerRoutes::hits(const Part& part, double rows) {
  double hits = 0;
  for (const double log : part.log_unasked) hits += 1 - std::exp(rows * log);
  return hits;
}

WireBytes LayerRoutes::wire(const Part& p, double rows, double row_bytes) {
  const double bytes = rows * row_bytes;
  return {bytes * (p.rows_out + p.pairs_out), bytes * (p.rows_in + p.pairs_in),
          bytes * (p.near_rows_out + p.near_pairs_out), bytes * (p.near_rows_in + p.near_pairs_in)};
}

double LayerRoutes::imbalance() const {
  double most = 0, sum = 0, devices = 0;
  for (const auto& [device, part] : parts_) {
    if (part.log_unasked.empty()) continue;
    most = std::max(most, part.pairs);
    sum += part.pairs;
    ++devices;
  }
  return sum > 0 ? most * devices / sum : 1;
}

bool LayerRoutes::leaves_device() const {
  return std::any_of(parts_.begin(), parts_.end(),
                     [](const auto& p) { return p.second.questions > 0; });
}

}  // namespace troupe
