#include "model/cost/round.h"

#include <algorithm>
#include <utility>

namespace troupe {

double RoundBound::seconds() const { return std::max({memory_s, compute_s, wire_s}); }

namespace {

/// Seconds of a piece of work on one kind of machine.
struct Times {
  double memory_s = 0, compute_s = 0, wire_s = 0, expected_s = 0;
  double overhead_s = 0;  ///< of expected_s: ops' and messages' own time
  void add(const Times& other) {
    memory_s += other.memory_s;
    compute_s += other.compute_s;
    wire_s += other.wire_s;
    expected_s += other.expected_s;
    overhead_s += other.overhead_s;
  }
  void raise(const Times& other) {
    memory_s = std::max(memory_s, other.memory_s);
    compute_s = std::max(compute_s, other.compute_s);
    wire_s = std::max(wire_s, other.wire_s);
    expected_s = std::max(expected_s, other.expected_s);
    overhead_s = std::max(overhead_s, other.overhead_s);
  }
};

Times times_of(const DeviceSpeed& speed, const Work& work) {
  return {memory_seconds(speed, work), compute_seconds(speed, work), 0,
          expected_seconds(speed, work), work.calls() * speed.efficiency.call_s};
}

double expected_wire(const DeviceSpeed& speed, const WireBytes& wire) {
  return wire_seconds(speed, wire) / speed.efficiency.wire;
}

std::vector<DeviceRef> askers_of(const Placement& placement, std::int32_t layer) {
  std::vector<DeviceRef> askers;
  for (const ShardPlacement& s : placement.shards)
    if (s.tp_rank == 0 && s.first_layer <= layer && layer <= s.last_layer)
      askers.push_back(s.device);
  return askers;
}

}  // namespace

Routes routes_of(const Placement& placement, const std::map<std::int32_t, ExpertChances>& chances) {
  Routes routes;
  for (const LayerExperts& layer : placement.experts)
    routes.emplace(layer.layer,
                   LayerRoutes(layer, chances.at(layer.layer), askers_of(placement, layer.layer)));
  return routes;
}

/// What is added up over a round: of one step in flight.
struct ClusterCost::Sum {
  std::map<DeviceRef, DeviceLoad> devices;
  std::map<std::uint32_t, Times> paths;  ///< by replica
  Times experts;                         ///< of every path
  double passes = 0, hits = 0;

  void add(const DeviceRef& device, const Work& work, const Times& times) {
    DeviceLoad& d = devices[device];
    d.weight_bytes += work.weight_bytes();
    d.kv_bytes += work.attention.bytes;
    d.operations += work.operations();
    d.memory_s += times.memory_s;
    d.compute_s += times.compute_s;
    d.expected_s += times.expected_s;
  }
};

ClusterCost::ClusterCost(Input input) : in_(std::move(input)) {
  for (const ShardPlacement& s : in_.placement.shards)
    ranks_ = std::max(ranks_, static_cast<int>(s.tp_rank) + 1);
}

const DeviceSpeed& ClusterCost::speed_of(const DeviceRef& device) const {
  return in_.speeds[in_.kind.at(device)];
}

void ClusterCost::add_shards(const StepShape& step, Sum& sum) const {
  const CostOptions options{in_.numerics, ranks_};
  const std::int32_t last = in_.spec.num_layers() - 1;
  for (std::int32_t layer = 0; layer <= last; ++layer) {
    const Work work = layer_work(in_.spec, layer, step, options);
    std::vector<Times> times;
    for (const DeviceSpeed& m : in_.speeds) times.push_back(times_of(m, work));
    for (const ShardPlacement& s : in_.placement.shards) {
      if (layer < s.first_layer || layer > s.last_layer) continue;
      const Times& here = times[in_.kind.at(s.device)];
      sum.add(s.device, work, here);
      if (s.tp_rank == 0) sum.paths[s.replica].add(here);
    }
  }
  const Work head = head_work(in_.spec, step, options);
  for (const ShardPlacement& s : in_.placement.shards) {
    if (s.last_layer != last) continue;
    const Times here = times_of(speed_of(s.device), head);
    sum.add(s.device, head, here);
    if (s.tp_rank == 0) sum.paths[s.replica].add(here);
  }
}

/// Hidden rows from stage to stage, and the sums of tensor-parallel ranks.
void ClusterCost::add_stage_wires(const StepShape& step, Sum& sum) const {
  const auto& shards = in_.placement.shards;
  const double hidden = step.rows * hidden_row_bytes(in_.spec);
  for (std::size_t i = 0; i < shards.size(); ++i) {
    const ShardPlacement& s = shards[i];
    WireBytes wire;
    double hops = 0;
    const double reduced =
        reduce_bytes(in_.spec, step.rows, ranks_) * (s.last_layer - s.first_layer + 1);
    wire.link_out = wire.link_in = reduced;
    for (const ShardPlacement& next : shards) {
      if (next.replica != s.replica || next.stage != s.stage + 1 || next.tp_rank != s.tp_rank ||
          next.device == s.device)
        continue;
      (next.device.node == s.device.node ? wire.link_out : wire.network_out) += hidden;
      WireBytes in;
      (next.device.node == s.device.node ? in.link_in : in.network_in) = hidden;
      sum.devices[next.device].wire.add(in);
      hops = 1;
    }
    sum.devices[s.device].wire.add(wire);
    const DeviceSpeed& m = speed_of(s.device);
    if (s.tp_rank != 0) continue;
    sum.paths[s.replica].add({0, 0, wire_seconds(m, wire),
                              expected_wire(m, wire) + hops * m.efficiency.hop_s,
                              hops * m.efficiency.hop_s});
  }
}

void ClusterCost::add_experts(std::int32_t layer, const LayerRoutes& routes, const StepShape& step,
                              Sum& sum) const {
  const CostOptions options{in_.numerics, 1};
  const Work unit = expert_work(in_.spec, layer, 1, 1, options);
  const double row_bytes = wire_row_bytes(in_.spec, in_.numerics);
  // A step waits for the slowest; were all alike, it would wait for the mean.
  Times slowest, all;
  double wire_s = 0, hop_s = 0;
  for (const auto& [device, part] : routes.parts()) {
    const DeviceSpeed& m = speed_of(device);
    const double hits = LayerRoutes::hits(part, step.rows);
    if (hits > 0) {
      Work work;
      work.add(unit, hits);
      for (ProductWork& p : work.products) {
        p.rows = part.pairs * step.rows / hits;
        p.calls = 1;  // one op for all of them
      }
      const Times times = times_of(m, work);
      sum.add(device, work, times);
      slowest.raise(times);
      all.add(times);
      sum.passes += 1;
      sum.hits += hits;
    }
    const WireBytes wire = LayerRoutes::wire(part, step.rows, row_bytes);
    sum.devices[device].wire.add(wire);
    all.wire_s += wire_seconds(m, wire);
    wire_s = std::max(wire_s, expected_wire(m, wire));
    if (part.questions > 0) hop_s = std::max(hop_s, 2 * m.efficiency.hop_s);
  }
  const auto devices = static_cast<double>(routes.parts().size());
  sum.experts.add({all.memory_s / devices, all.compute_s / devices, all.wire_s / devices,
                   slowest.expected_s + wire_s + hop_s, slowest.overhead_s + hop_s});
}

Round ClusterCost::round(const StepShape& step, double in_flight) const {
  Sum sum;
  add_shards(step, sum);
  add_stage_wires(step, sum);
  for (const auto& [layer, routes] : *in_.routes) add_experts(layer, routes, step, sum);

  Round round;
  Times path;
  for (auto& [replica, times] : sum.paths) path.raise(times);
  path.add(sum.experts);
  round.latency_s = path.expected_s;
  round.overhead_s = path.overhead_s;
  round.bound = {path.memory_s, path.compute_s, path.wire_s};
  for (auto& [device, load] : sum.devices) {
    const double wire_s = wire_seconds(speed_of(device), load.wire);
    round.bound.memory_s = std::max(round.bound.memory_s, in_flight * load.memory_s);
    round.bound.compute_s = std::max(round.bound.compute_s, in_flight * load.compute_s);
    round.bound.wire_s = std::max(round.bound.wire_s, in_flight * wire_s);
    if (in_flight * load.expected_s <= round.busy_s) continue;
    round.busy_s = in_flight * load.expected_s;
    round.busiest = load;
  }
  for (double* amount :
       {&round.busiest.weight_bytes, &round.busiest.kv_bytes, &round.busiest.operations})
    *amount *= in_flight;
  WireBytes wire;
  wire.add(round.busiest.wire, in_flight);
  round.busiest.wire = wire;
  round.passes = sum.passes * in_flight;
  round.hits = sum.passes > 0 ? sum.hits / sum.passes : 0;
  return round;
}

double ClusterCost::imbalance() const {
  double sum = 0;
  for (const auto& [layer, routes] : *in_.routes) sum += routes.imbalance();
  return in_.routes->empty() ? 1 : sum / static_cast<double>(in_.routes->size());
}

bool ClusterCost::lacks_network() const {
  Sum sum;
  const StepShape one = decode_step(1, 1);
  add_stage_wires(one, sum);
  for (const auto& [layer, routes] : *in_.routes) add_experts(layer, routes, one, sum);
  return std::any_of(sum.devices.begin(), sum.devices.end(), [&](const auto& d) {
    return d.second.wire.network_out + d.second.wire.network_in > 0 &&
           speed_of(d.first).ceilings.network <= 0;
  });
}

}  // namespace troupe
