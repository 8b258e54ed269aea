#include "tools/troupe/plan/speed.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>

#include "model/placement/balance_experts.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

/// Layers' experts are hot in another order each.
constexpr std::int32_t kTurn = 37;
/// What is worth saying.
constexpr double kGain = 1.05;

std::string two_digits(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.2f", value);
  return text;
}

std::int64_t context_of(const FitQuestion& q, const SpeedQuestion& speed) {
  return speed.context > 0 ? speed.context
                           : std::min<std::int64_t>(kContextDefault, q.engine.max_model_len);
}

std::map<std::int32_t, ExpertChances> chances_of(const FitQuestion& q, const SpeedQuestion& speed) {
  std::map<std::int32_t, ExpertChances> chances;
  for (std::int32_t layer = 0; layer < q.spec.num_layers(); ++layer) {
    const LayerSpec& l = q.spec.layers[static_cast<std::size_t>(layer)];
    if (!l.has_experts()) continue;
    const kernels::GateConfig& gate = l.experts.gate;
    const auto loads = speed.loads.find(layer);
    chances[layer] = loads != speed.loads.end()
                         ? chances_of_counts(loads->second, gate.top_k)
                         : chances_of_skew(gate.experts, gate.top_k, speed.skew, layer * kTurn);
  }
  return chances;
}

/// As the Supervisor lays the experts out once it knows their loads.
Placement balanced(const FitQuestion& q, const Fit& fit,
                   const std::map<std::int32_t, ExpertChances>& chances) {
  Placement placement = fit.placement;
  BalanceInput input;
  std::set<DeviceRef> devices;
  for (const LayerExperts& layer : placement.experts) {
    input.layers.push_back(layer.layer);
    const ExpertChances& c = chances.at(layer.layer);
    input.weight.emplace_back(c.begin(), c.end());
    input.copies = std::max(input.copies, static_cast<std::int32_t>(layer.slots.size()));
    for (const ExpertSlot& slot : layer.slots) devices.insert(slot.device);
  }
  input.num_experts = q.spec.num_experts();
  input.num_groups = q.spec.expert_groups();
  input.devices.assign(devices.begin(), devices.end());
  if (auto layers = balance_experts(input)) placement.experts = std::move(*layers);
  return placement;
}

class Speeds {
 public:
  Speeds(const FitQuestion& q, const Fit& fit, const SpeedQuestion& speed)
      : q_(q),
        fit_(fit),
        speed_(speed),
        chances_(chances_of(q, speed)),
        placement_(uneven() ? balanced(q, fit, chances_) : fit.placement),
        routes_(std::make_shared<Routes>(routes_of(placement_, chances_))),
        cost_(input()) {}
  /// The same with other devices or another cache, where every row goes as before.
  Speeds(const FitQuestion& q, const SpeedQuestion& speed, const Speeds& before)
      : q_(q),
        fit_(before.fit_),
        speed_(speed),
        chances_(before.chances_),
        placement_(before.placement_),
        routes_(before.routes_),
        cost_(input()) {}

  const ClusterCost& cost() const { return cost_; }
  const std::map<std::int32_t, ExpertChances>& chances() const { return chances_; }

  StepSpeed decode(std::int64_t sequences) const {
    StepSpeed s;
    s.rows = sequences;
    s.tokens = static_cast<double>(sequences * replicas());
    // A pipeline's steps share the sequences out.
    const std::int64_t steps = std::min(sequences, stages());
    const double rows = static_cast<double>(sequences) / static_cast<double>(steps);
    s.round = cost_.round(decode_step(rows, static_cast<double>(context_of(q_, speed_))),
                          static_cast<double>(steps));
    s.limit = limit_of(s.round);
    return s;
  }

  /// Steps are as large as the flags let them be and take no longer than a replica lets them.
  StepSpeed prefill() const {
    constexpr int kTries = 8;
    const double target_s = std::chrono::duration<double>(limits::kStepTarget).count();
    std::int64_t rows = fit_.engine.max_num_batched_tokens;
    StepSpeed s = prefill_of(rows);
    for (int i = 0; i < kTries && s.round.latency_s > target_s && rows > 1; ++i) {
      rows = std::max<std::int64_t>(
          1, static_cast<std::int64_t>(static_cast<double>(rows) * target_s / s.round.latency_s));
      s = prefill_of(rows);
    }
    return s;
  }

  StepSpeed prefill_of(std::int64_t rows) const {
    StepSpeed s;
    s.rows = rows;
    s.tokens = static_cast<double>(rows * replicas() * stages());
    s.round = cost_.round(
        prompt_step(static_cast<double>(rows), static_cast<double>(context_of(q_, speed_))),
        static_cast<double>(stages()));
    s.limit = limit_of(s.round);
    return s;
  }

 private:
  bool uneven() const {
    return !fit_.placement.experts.empty() && (speed_.skew > 1 || !speed_.loads.empty());
  }
  std::int64_t stages() const { return fit_.engine.pipeline_parallel_size; }
  std::int64_t replicas() const {
    return static_cast<std::int64_t>(fit_.placement.replicas.size());
  }

  ClusterCost::Input input() const {
    ClusterCost::Input in{q_.spec, *q_.engine.numerics, placement_, {}, {}, routes_};
    std::uint32_t node = 0;
    for (std::size_t g = 0; g < q_.nodes.size(); ++g) {
      in.speeds.push_back(speed_.groups[g].device_speed);
      for (std::int64_t n = 0; n < q_.nodes[g].nodes; ++n) {
        ++node;
        for (std::int64_t d = 0; d < q_.nodes[g].devices; ++d)
          in.kind[{NodeId{node}, static_cast<std::uint32_t>(d)}] = g;
      }
    }
    return in;
  }

  static Limit limit_of(const Round& round) {
    if (round.overhead_s > round.seconds() / 2) return Limit::kOverhead;
    const RoundBound& b = round.bound;
    if (b.seconds() == b.wire_s) return Limit::kWire;
    return b.seconds() == b.compute_s ? Limit::kCompute : Limit::kMemory;
  }

  const FitQuestion& q_;
  const Fit& fit_;
  const SpeedQuestion& speed_;
  const std::map<std::int32_t, ExpertChances> chances_;
  const Placement placement_;
  const std::shared_ptr<const Routes> routes_;
  const ClusterCost cost_;
};

/// What else could be given, each tried alone on the largest batch.
void try_changes(const FitQuestion& q, const Fit& fit, const SpeedQuestion& speed,
                 const Speeds& speeds, SpeedAnswer& answer) {
  const StepSpeed& now = answer.decode.back();
  const auto offer = [&](const std::string& what, double rate) {
    if (rate > kGain * now.tokens_per_s()) answer.changes.push_back({what, rate});
  };
  const auto with = [&](const std::string& what, const SpeedQuestion& tried) {
    offer(what, Speeds(q, tried, speeds).decode(now.rows).tokens_per_s());
  };
  offer("twice the sequences a replica (--max-num-seqs, and cache for them)",
        speeds.decode(2 * now.rows).tokens_per_s());
  if (kv_type(*q.engine.numerics) == DType::kBf16) {
    FitQuestion small = q;
    small.engine.numerics = with_kv_fp8(*q.engine.numerics);
    offer("--kv-cache-dtype fp8", Speeds(small, speed, speeds).decode(now.rows).tokens_per_s());
  }
  SpeedQuestion tried = speed;
  for (GroupSpeed& g : tried.groups) g.device_speed.ceilings.network *= 2;
  with("a network twice as fast", tried);
  tried = speed;
  for (GroupSpeed& g : tried.groups) g.device_speed.arithmetic = Arithmetic::kBf16;
  if (std::any_of(speed.groups.begin(), speed.groups.end(), [](const GroupSpeed& g) {
        return g.device_speed.arithmetic == Arithmetic::kFma;
      }))
    with("products on tensor cores (--numerics cuda_mma)", tried);
  tried = speed;
  tried.skew = 1;
  tried.loads.clear();
  if (answer.skew > 1)
    offer("experts that are chosen alike", Speeds(q, fit, tried).decode(now.rows).tokens_per_s());
}

std::string missing_text(const FitQuestion& q, const SpeedQuestion& speed) {
  for (std::size_t g = 0; g < speed.groups.size(); ++g)
    if (!speed.groups[g].known())
      return "How fast it is cannot be said: nobody has told how fast " +
             to_string(std::vector<NodeGroup>{q.nodes[g]}) +
             " is. Give --memory-bandwidth and --compute, or --measure if this machine is one of "
             "them.";
  return {};
}

}  // namespace

std::string_view to_string(Limit limit) {
  constexpr std::string_view kNames[] = {"memory", "compute", "wire", "overhead"};
  return kNames[static_cast<int>(limit)];
}

Status check_speed(const FitQuestion& q, const SpeedQuestion& speed) {
  if (speed.context < 0 || speed.context > q.engine.max_model_len)
    return invalid_argument(
        "--context must be from 1 to " + std::to_string(q.engine.max_model_len) +
        ", which is --max-model-len, not " + std::to_string(speed.context) + ".");
  const double most =
      q.spec.num_experts() > 0 ? static_cast<double>(q.spec.num_experts()) / q.spec.top_k() : 1;
  if (!(speed.skew >= 1 && speed.skew <= most)) {
    if (q.spec.num_experts() == 0)
      return invalid_argument("--skew: this model has no experts; leave it out.");
    return invalid_argument("--skew must be from 1 (all experts alike) to " + two_digits(most) +
                            " (every row chooses the busiest expert), not " +
                            two_digits(speed.skew) + ".");
  }
  for (const auto& [layer, loads] : speed.loads)
    if (layer < 0 || layer >= q.spec.num_layers() ||
        !q.spec.layers[static_cast<std::size_t>(layer)].has_experts() ||
        static_cast<std::int32_t>(loads.size()) !=
            q.spec.layers[static_cast<std::size_t>(layer)].experts.gate.experts)
      return invalid_argument("--expert-loads: what it says of layer " + std::to_string(layer) +
                              " does not fit this model; take the status of a cluster that serves "
                              "it.");
  return {};
}

Result<SpeedAnswer> find_speed(const FitQuestion& q, const Fit& fit, const SpeedQuestion& speed) {
  SpeedAnswer answer;
  answer.context = context_of(q, speed);
  answer.missing = missing_text(q, speed);
  if (!answer.missing.empty()) return answer;
  const Speeds speeds(q, fit, speed);
  for (const auto& [layer, chances] : speeds.chances())
    answer.skew = (layer == speeds.chances().begin()->first ? 0 : answer.skew) +
                  skew_of(chances) / static_cast<double>(speeds.chances().size());
  answer.imbalance = speeds.cost().imbalance();
  answer.lacks_network = speeds.cost().lacks_network();
  const auto cached = static_cast<std::int64_t>(fit.kv_tokens_min) / answer.context;
  answer.cache_limits = cached < fit.engine.max_num_seqs;
  answer.sequences_max = std::max<std::int64_t>(
      1,
      std::min<std::int64_t>({cached, fit.engine.max_num_seqs, fit.engine.max_num_batched_tokens}));
  for (const std::int64_t batch : kBatches)
    if (batch < answer.sequences_max) answer.decode.push_back(speeds.decode(batch));
  answer.decode.push_back(speeds.decode(answer.sequences_max));
  answer.prefill = speeds.prefill();
  const StepSpeed chunk = speeds.prefill_of(std::min(answer.prefill.rows, answer.context));
  answer.prompt_s = chunk.round.latency_s * std::ceil(static_cast<double>(answer.context) /
                                                      static_cast<double>(chunk.rows));
  try_changes(q, fit, speed, speeds, answer);
  return answer;
}

}  // namespace troupe
