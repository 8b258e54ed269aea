#include "kernels/moe_gate.h"

#include <cassert>

#include "kernels/cpu/ops.h"
#include "kernels/cpu/row_kernels.h"
#include "kernels/gate_row.h"

namespace troupe::kernels {
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
  auto* rooms = scratch.take<gate::Room>(static_cast<std::size_t>(threads));
  for (int t = 0; t < threads; ++t)
    rooms[t] = {scratch.take<float>(experts), scratch.take<float>(experts),
                scratch.take<float>(experts), scratch.take<bool>(experts),
                scratch.take<std::int32_t>(experts)};
  const auto rows = static_cast<std::size_t>(logits.rows);
  parallel_ranges(stream, rows, work_ns, [&](int thread, std::size_t first, std::size_t last) {
    for (auto r = static_cast<std::int64_t>(first); r < static_cast<std::int64_t>(last); ++r)
      gate::choose(config, head_of<const float>(logits, r), bias, rooms[thread], ids + r * top_k,
               weights + r * top_k);
  });
}

}  // namespace troupe::kernels
