#include "kernels/moe_gate.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"
#include "kernels/gate_row.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A CTA a row, whose threads have every 128th expert: what kernels/gate_row.h defines, with each
/// expert's place among the others counted instead of searched for. Operations: 2 x experts^2 / 128
/// comparisons a thread. Bytes: 20 an expert. Bound by the latency of its at most eight barriers.
struct Gate {
  static constexpr int kThreads = 128;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = true;

  GateConfig config;
  Tensor logits;
  const float* bias;
  gate::Room rooms;  ///< of the first row; those of the others follow
  std::int32_t* ids;
  float* weights;

  DEVICE void operator()(Cta& cta) const {
    const std::int64_t row = cta.block_x(), at = row * config.experts;
    const gate::Room room = {rooms.scores + at, rooms.choice + at, rooms.groups + at,
                             rooms.taken + at, rooms.chosen_groups + at};
    const auto* from = head_at<const float>(logits, row);
    score(cta, from, room.scores);
    each(cta, config.experts, [&](int e) {
      const float shifted = bias != nullptr ? room.scores[e] + bias[e] : room.scores[e];
      room.choice[e] = gate::ordered(shifted);
    });
    cta.sync();
    if (config.method != GateMethod::kGreedy && config.topk_group < config.n_group)
      limit_groups(cta, room);
    each(cta, config.experts,
         [&](int e) { room.taken[e] = place(room.choice, config.experts, e) < config.top_k; });
    cta.sync();
    std::int32_t* const chosen = ids + row * config.top_k;
    each(cta, config.experts, [&](int e) {
      if (!room.taken[e]) return;
      int before = 0;
      for (int other = 0; other < e; ++other) before += room.taken[other] ? 1 : 0;
      chosen[before] = e;
    });
    cta.sync();
    if (cta.thread() == 0)
      gate::weigh(config, from, room.scores, chosen, weights + row * config.top_k);
  }

 private:
  template <class Body>
  DEVICE static void each(Cta& cta, int count, const Body& body) {
    for (int i = cta.thread(); i < count; i += kThreads) body(i);
  }

  /// How many values are above one of them: larger, or as large and before it.
  DEVICE static int place(const float* values, int count, int of) {
    const float value = values[of];
    int above = 0;
    for (int i = 0; i < count; ++i)
      above += values[i] > value || (values[i] == value && i < of) ? 1 : 0;
    return above;
  }

  /// What is summed is summed by all threads alike, in the order of the experts.
  DEVICE void score(Cta& cta, const float* from, float* scores) const {
    if (config.scoring != GateScoring::kSoftmax) {
      const bool sigmoid = config.scoring == GateScoring::kSigmoid;
      each(cta, config.experts,
           [&](int e) { scores[e] = sigmoid ? sigmoid_f32(from[e]) : from[e]; });
      return;
    }
    float highest = gate::kLowest;
    for (int e = 0; e < config.experts; ++e) {
      const float logit = gate::ordered(from[e]);
      highest = highest < logit ? logit : highest;
    }
    each(cta, config.experts, [&](int e) { scores[e] = exp_f32(from[e] - highest); });
    cta.sync();
    float sum = 0;
    for (int e = 0; e < config.experts; ++e) sum += scores[e];
    cta.sync();
    each(cta, config.experts, [&](int e) { scores[e] /= sum; });
  }

  DEVICE void limit_groups(Cta& cta, const gate::Room& room) const {
    const int size = config.experts / config.n_group;
    each(cta, config.n_group, [&](int g) {
      room.groups[g] = gate::group_score(config.method, room.choice + g * size, size);
    });
    cta.sync();
    each(cta, config.n_group, [&](int g) {
      room.chosen_groups[g] = place(room.groups, config.n_group, g) < config.topk_group ? 1 : 0;
    });
    cta.sync();
    each(cta, config.experts, [&](int e) {
      if (room.chosen_groups[e / size] == 0) room.choice[e] = gate::kLowest;
    });
    cta.sync();
  }
};

}  // namespace
}  // namespace TROUPE_CUDA_SPACE

void TROUPE_CUDA_SPACE::moe_gate(Stream& stream, const GateConfig& config, const Tensor& logits,
                                 const float* bias, std::int32_t* ids, float* weights) {
  assert(logits.cols() == config.experts && config.top_k >= 1 && config.top_k <= config.experts);
  assert(config.n_group >= 1 && config.experts % config.n_group == 0);
  assert(config.topk_group >= 1 && config.topk_group <= config.n_group);
  Stream::Scope scope(stream);
  Scratch& scratch = stream.scratch();
  const auto count = static_cast<std::size_t>(logits.rows * config.experts);
  const gate::Room rooms = {scratch.take<float>(count), scratch.take<float>(count),
                            scratch.take<float>(count), scratch.take<bool>(count),
                            scratch.take<std::int32_t>(count)};
  launch(stream, {logits.rows}, Gate{config, logits, bias, rooms, ids, weights});
}

}  // namespace troupe::kernels
