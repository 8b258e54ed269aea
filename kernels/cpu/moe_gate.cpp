#include "kernels/moe_gate.h"

#include <algorithm>
#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/scalar_math.h"
#include "runtime/limits.h"

namespace troupe::kernels {
namespace {

constexpr float kLowest = -__builtin_inff();

/// NaN becomes the lowest score, so that a choice is always possible and always the same.
float ordered(float x) { return x != x ? kLowest : x; }

void score(const GateConfig& c, const float* logits, float* scores) {
  if (c.scoring == GateScoring::kSigmoid) {
    for (int e = 0; e < c.experts; ++e) scores[e] = sigmoid_f32(logits[e]);
    return;
  }
  if (c.scoring == GateScoring::kSoftmaxChosen) {
    std::copy_n(logits, c.experts, scores);
    return;
  }
  float highest = kLowest;
  for (int e = 0; e < c.experts; ++e) highest = std::max(highest, ordered(logits[e]));
  float sum = 0;
  for (int e = 0; e < c.experts; ++e) sum += scores[e] = exp_f32(logits[e] - highest);
  for (int e = 0; e < c.experts; ++e) scores[e] /= sum;
}

/// Ids of the k largest values, ascending; of equal values the lowest id. `taken` is room for n.
void top_k(const float* values, int n, int k, bool* taken, std::int32_t* ids) {
  std::fill_n(taken, n, false);
  for (int i = 0; i < k; ++i) {
    int best = -1;
    for (int e = 0; e < n; ++e)
      if (!taken[e] && (best < 0 || values[e] > values[best])) best = e;
    taken[best] = true;
  }
  for (int e = 0; e < n; ++e)
    if (taken[e]) *ids++ = e;
}

float group_score(GateMethod method, const float* choice, int size) {
  float first = kLowest, second = kLowest;
  for (int e = 0; e < size; ++e) {
    if (choice[e] > first) {
      second = first;
      first = choice[e];
    } else if (choice[e] > second) {
      second = choice[e];
    }
  }
  if (method == GateMethod::kGroupLimitedGreedy || size < 2) return first;
  return ordered(first + second);
}

struct GateRoom {
  float *scores, *choice, *groups;
  bool* taken;
  std::int32_t* chosen_groups;
};

void limit_groups(const GateConfig& c, const GateRoom& room) {
  const int size = c.experts / c.n_group;
  for (int g = 0; g < c.n_group; ++g)
    room.groups[g] = group_score(c.method, room.choice + g * size, size);
  top_k(room.groups, c.n_group, c.topk_group, room.taken, room.chosen_groups);
  int next = 0;
  for (int g = 0; g < c.n_group; ++g) {
    if (next < c.topk_group && room.chosen_groups[next] == g) {
      ++next;
      continue;
    }
    std::fill_n(room.choice + g * size, size, kLowest);
  }
}

/// Weights by id: the scores of the chosen, or a softmax over them alone.
void weigh(const GateConfig& c, const float* logits, const float* scores, const std::int32_t* ids,
           float* weights) {
  float sum = 0;
  if (c.scoring == GateScoring::kSoftmaxChosen) {
    float highest = kLowest;
    for (int i = 0; i < c.top_k; ++i) highest = std::max(highest, ordered(logits[ids[i]]));
    for (int i = 0; i < c.top_k; ++i) sum += weights[i] = exp_f32(logits[ids[i]] - highest);
    for (int i = 0; i < c.top_k; ++i) weights[i] /= sum;
    sum = 0;
    for (int i = 0; i < c.top_k; ++i) sum += weights[i];
  } else {
    for (int i = 0; i < c.top_k; ++i) sum += weights[i] = scores[ids[i]];
  }
  for (int i = 0; i < c.top_k; ++i) {
    if (c.norm_topk_prob) weights[i] /= sum + 1e-20f;
    weights[i] *= c.routed_scaling_factor;
  }
}

void gate_row(const GateConfig& c, const float* logits, const float* bias, const GateRoom& room,
              std::int32_t* ids, float* weights) {
  score(c, logits, room.scores);
  for (int e = 0; e < c.experts; ++e)
    room.choice[e] = ordered(bias != nullptr ? room.scores[e] + bias[e] : room.scores[e]);
  if (c.method != GateMethod::kGreedy && c.topk_group < c.n_group) limit_groups(c, room);
  top_k(room.choice, c.experts, c.top_k, room.taken, ids);
  weigh(c, logits, room.scores, ids, weights);
}

}  // namespace

void cpu::moe_gate(Stream& stream, const GateConfig& config, const Tensor& logits,
                   const float* bias, std::int32_t* ids, float* weights) {
  const std::int64_t top_k = config.top_k;
  assert(logits.cols() == config.experts && top_k >= 1 && top_k <= config.experts);
  assert(config.n_group >= 1 && config.experts % config.n_group == 0);
  assert(config.topk_group >= 1 && config.topk_group <= config.n_group);
  Scratch& scratch = stream.scratch();
  Scratch::Scope scope(scratch);
  const auto experts = static_cast<std::size_t>(config.experts);
  const double work_ns = static_cast<double>(logits.rows * config.experts * (top_k + 4));
  const int threads = worthwhile_threads(stream, work_ns);
  auto* rooms = scratch.take<GateRoom>(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t)
    rooms[t] = {scratch.take<float>(experts), scratch.take<float>(experts),
                scratch.take<float>(experts), scratch.take<bool>(experts),
                scratch.take<std::int32_t>(experts)};
  const auto rows = static_cast<std::size_t>(logits.rows);
  parallel_ranges(stream, rows, work_ns, [&](int thread, std::size_t first, std::size_t last) {
    for (auto r = static_cast<std::int64_t>(first); r < static_cast<std::int64_t>(last); ++r)
      gate_row(config, head_of<const float>(logits, r), bias, rooms[thread], ids + r * top_k,
               weights + r * top_k);
  });
}

}  // namespace troupe::kernels
