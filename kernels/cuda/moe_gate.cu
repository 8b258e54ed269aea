#include "kernels/moe_gate.h"

#include <cassert>

#include "kernels/cuda/each.h"
#include "kernels/cuda/ops.h"
#include "kernels/gate_row.h"

namespace troupe::kernels {
namespace TROUPE_CUDA_SPACE {
namespace {

/// A thread a row: top_k + 4 passes over the experts, one after the other. Bound by their latency;
/// what it reads and writes is 20 bytes an expert.
struct Gate {
  static constexpr int kThreads = 32;
  static constexpr std::size_t kSharedBytes = 0;
  static constexpr bool kMeets = false;

  GateConfig config;
  Tensor logits;
  const float* bias;
  gate::Room rooms;  ///< of the first row; those of the others follow
  std::int32_t* ids;
  float* weights;

  DEVICE void operator()(Cta& cta) const {
    const std::int64_t row = cta.block_x() * kThreads + cta.thread();
    if (row >= logits.rows) return;
    const std::int64_t at = row * config.experts;
    const gate::Room room = {rooms.scores + at, rooms.choice + at, rooms.groups + at,
                             rooms.taken + at, rooms.chosen_groups + at};
    gate::choose(config, head_at<const float>(logits, row), bias, room, ids + row * config.top_k,
                 weights + row * config.top_k);
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
  launch(stream, {ceil_div(logits.rows, Gate::kThreads)},
         Gate{config, logits, bias, rooms, ids, weights});
}

}  // namespace troupe::kernels
