#pragma once

#include "kernels/moe_gate.h"
#include "kernels/scalar_math.h"

/// One row of the gate, in an order that the numerics define: what CPUs and GPUs compute alike.
namespace troupe::kernels::gate {

inline constexpr float kLowest = -__builtin_inff();

/// Room for a row: all of [experts].
struct Room {
  float *scores, *choice, *groups;
  bool* taken;
  std::int32_t* chosen_groups;
};

/// NaN becomes the lowest score, so that a choice is always possible and always the same.
TROUPE_INLINE float ordered(float x) { return x != x ? kLowest : x; }

TROUPE_INLINE void score(const GateConfig& c, const float* logits, float* scores) {
  if (c.scoring == GateScoring::kSigmoid) {
    for (int e = 0; e < c.experts; ++e) scores[e] = sigmoid_f32(logits[e]);
    return;
  }
  if (c.scoring == GateScoring::kSoftmaxChosen) {
    for (int e = 0; e < c.experts; ++e) scores[e] = logits[e];
    return;
  }
  float highest = kLowest;
  for (int e = 0; e < c.experts; ++e)
    highest = highest < ordered(logits[e]) ? ordered(logits[e]) : highest;
  float sum = 0;
  for (int e = 0; e < c.experts; ++e) sum += scores[e] = exp_f32(logits[e] - highest);
  for (int e = 0; e < c.experts; ++e) scores[e] /= sum;
}

/// Ids of the k largest values, ascending; of equal values the lowest id. `taken` is room for n.
TROUPE_INLINE void top_k(const float* values, int n, int k, bool* taken, std::int32_t* ids) {
  for (int e = 0; e < n; ++e) taken[e] = false;
  for (int i = 0; i < k; ++i) {
    int best = -1;
    for (int e = 0; e < n; ++e)
      if (!taken[e] && (best < 0 || values[e] > values[best])) best = e;
    taken[best] = true;
  }
  for (int e = 0; e < n; ++e)
    if (taken[e]) *ids++ = e;
}

TROUPE_INLINE float group_score(GateMethod method, const float* choice, int size) {
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

TROUPE_INLINE void limit_groups(const GateConfig& c, const Room& room) {
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
    for (int e = g * size; e < (g + 1) * size; ++e) room.choice[e] = kLowest;
  }
}

/// Weights by id: the scores of the chosen, or a softmax over them alone.
TROUPE_INLINE void weigh(const GateConfig& c, const float* logits, const float* scores,
                         const std::int32_t* ids, float* weights) {
  float sum = 0;
  if (c.scoring == GateScoring::kSoftmaxChosen) {
    float highest = kLowest;
    for (int i = 0; i < c.top_k; ++i)
      highest = highest < ordered(logits[ids[i]]) ? ordered(logits[ids[i]]) : highest;
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

TROUPE_INLINE void choose(const GateConfig& c, const float* logits, const float* bias,
                          const Room& room, std::int32_t* ids, float* weights) {
  score(c, logits, room.scores);
  for (int e = 0; e < c.experts; ++e)
    room.choice[e] = ordered(bias != nullptr ? room.scores[e] + bias[e] : room.scores[e]);
  if (c.method != GateMethod::kGreedy && c.topk_group < c.n_group) limit_groups(c, room);
  top_k(room.choice, c.experts, c.top_k, room.taken, ids);
  weigh(c, logits, room.scores, ids, weights);
}

}  // namespace troupe::kernels::gate
