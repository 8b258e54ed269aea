#include "model/forward/step_memory.h"

#include <algorithm>

#include "kernels/cpu/attention_tile.h"
#include "kernels/cpu/products.h"
#include "kernels/cuda/product_room.h"
#include "kernels/scratch.h"
#include "model/forward/experts.h"
#include "model/forward/head.h"
#include "model/forward/step.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

using kernels::Scratch;

/// What is taken of an arena between two points that give it back.
class Taken {
 public:
  void take(std::int64_t bytes) {
    const auto rounded = (static_cast<std::uint64_t>(bytes) + 63) / 64 * 64;
    bytes_ += rounded;
    largest_ = std::max(largest_, rounded);
  }
  void floats(std::int64_t rows, std::int64_t dim) { take(rows * dim * 4); }
  /// Taken on top, and given back before anything else is.
  void inside(const Taken& scope) {
    scopes_ = std::max(scopes_, scope.most());
    largest_ = std::max(largest_, scope.largest_);
  }
  std::uint64_t most() const { return bytes_ + scopes_; }
  /// What the arena holds then: where a tensor did not fit, the end of a block lies idle.
  std::uint64_t held() const {
    const std::uint64_t tails = std::min<std::uint64_t>(kTails * Scratch::kGrowthBytes, 2 * most());
    return most() + largest_ + tails + kFirstBytes;
  }

 private:
  static constexpr std::uint64_t kTails = 16, kFirstBytes = 1u << 20;
  std::uint64_t bytes_ = 0, scopes_ = 0, largest_ = 0;
};

const WeightSpec* find(const std::vector<WeightSpec>& weights, WeightRole role) {
  for (const WeightSpec& w : weights)
    if (w.role == role) return &w;
  return nullptr;
}

/// A row as products want it: slices in whole blocks of four bytes each, twice where both parts of
/// a float32 are kept.
std::int64_t prepared_row(std::int64_t k, int slices, bool full) {
  constexpr std::int64_t kBlock = kernels::WeightLayout::kBlock;
  const std::int64_t slice = (k / slices + kBlock - 1) / kBlock * kBlock;
  return slice * slices * (full ? 8 : 4);
}
std::int64_t prepared_row(const WeightSpec& w) {
  return prepared_row(w.k, w.slices, w.precision == Precision::kFull);
}

/// Of products of up to so much k: of each thread, or the sums of a GPU's CTAs.
Taken product_room(const StepLoad& load, std::int64_t k) {
  Taken room;
  room.take(std::max(load.threads * static_cast<std::int64_t>(kernels::cpu::kProductRoom),
                     kernels::shared_sums_bytes(k)));
  return room;
}

/// kernels/cpu/attention.cpp: the units of work, a room for each thread, and the results of parts
/// of the context that wait for being joined.
Taken attention(const AttentionSpec& a, const StepLoad& load) {
  using kernels::cpu::kTile, kernels::cpu::kUnitQueries;
  constexpr std::int64_t kSmall = 64;  // a unit, a piece, an arena's rounding
  const std::int64_t pairs = load.rows * a.heads;
  Taken taken;
  taken.take((pairs / kUnitQueries + load.rows * a.kv_heads + 2 * load.threads) * kSmall);
  const std::int64_t partial = kUnitQueries * (a.v_dim + 2) * 4;
  const std::int64_t query = (a.qk_dim + 31) / 32 * 32 * 4;
  taken.take(load.threads * (kUnitQueries * (query + kTile * 4 + 8) + 16 * kTile + 3 * partial +
                             static_cast<std::int64_t>(kernels::cpu::kTileRoom) +
                             4 * (a.qk_dim + a.v_dim) + 20 * kSmall));
  const std::int64_t parts = load.positions / kTile + 2;
  const std::int64_t row = (a.v_dim + 2) * 4;
  const std::int64_t waiting = std::min(
      pairs * parts * row, std::max<std::int64_t>(kernels::cpu::kWaitingBytes, parts * partial));
  taken.take(waiting + waiting / row * 4 * kSmall);
  return taken;
}

std::int64_t longest(const LayerSpec& layer) {
  std::int64_t k = 0;
  for (const WeightSpec& w : layer.weights) k = std::max(k, w.k);
  return k;
}

Taken mla(const LayerSpec& layer, const StepLoad& load) {
  const AttentionSpec& a = layer.attention;
  const std::int64_t rows = load.rows, heads = a.heads;
  Taken attend;
  attend.take(rows * prepared_row(*find(layer.weights, WeightRole::kKvA)));
  attend.floats(rows, a.kv_lora + a.rope);
  attend.floats(rows, heads * (a.nope + a.rope));
  attend.floats(rows, a.q_lora);
  attend.take(rows * prepared_row(*find(layer.weights, WeightRole::kQb)));
  attend.floats(rows, heads * (a.kv_lora + a.rope));
  attend.take(rows * heads * prepared_row(a.nope, 1, true));
  attend.inside(attention(a, load));
  attend.inside(product_room(load, longest(layer)));
  Taken taken;
  taken.floats(rows, heads * a.kv_lora);
  taken.inside(attend);
  Taken out;
  out.floats(rows, heads * a.v_head);
  out.take(rows * heads * prepared_row(a.kv_lora, 1, true));
  out.take(rows * prepared_row(*find(layer.weights, WeightRole::kO)));
  out.inside(product_room(load, longest(layer)));
  taken.inside(out);
  return taken;
}

Taken grouped(const LayerSpec& layer, const StepLoad& load) {
  const AttentionSpec& a = layer.attention;
  Taken taken;
  taken.floats(load.rows, a.heads * a.qk_dim);
  taken.floats(load.rows, a.kv_heads * a.qk_dim);
  taken.floats(load.rows, a.kv_heads * a.v_dim);
  taken.take(load.rows * prepared_row(*find(layer.weights, WeightRole::kQ)));
  taken.floats(load.rows, a.heads * a.v_dim);
  taken.take(load.rows * prepared_row(*find(layer.weights, WeightRole::kO)));
  taken.inside(attention(a, load));
  taken.inside(product_room(load, longest(layer)));
  return taken;
}

/// The prepared input, gate and up, the prepared product of them.
Taken gated_mlp(const std::vector<WeightSpec>& weights, WeightRole up, WeightRole down,
                std::int64_t rows, const StepLoad& load) {
  Taken taken;
  const WeightSpec &u = *find(weights, up), &d = *find(weights, down);
  taken.take(rows * prepared_row(u));
  taken.take(rows * prepared_row(d));
  taken.floats(rows, 2 * u.n);
  taken.inside(product_room(load, std::max(u.k, d.k)));
  return taken;
}

Taken route(const LayerSpec& layer, const StepLoad& load) {
  const std::int64_t experts = layer.experts.gate.experts;
  Taken taken;
  taken.floats(load.rows, experts);
  taken.take(load.rows * prepared_row(*find(layer.weights, WeightRole::kRouter)));
  taken.take(load.threads * (experts * 17 + 512));  // what each thread chooses with
  taken.inside(product_room(load, find(layer.weights, WeightRole::kRouter)->k));
  return taken;
}

/// kernels/cpu/sample.cpp: scores, weights and candidates of each thread. kernels/cuda/sample.cu:
/// scores and candidates of each row, twice. What was asked and answered, and the tokens that have
/// penalties.
Taken sampling(const ModelSpec& spec, std::int64_t rows, const StepLoad& load) {
  constexpr std::int64_t kCall = 2 * (128 + 8 * static_cast<std::int64_t>(limits::kTopLogprobsMax));
  constexpr std::int64_t kUsed = 8, kArenas = 3 * 64;
  Taken taken;
  taken.take(rows * (kCall + kUsed * std::min<std::int64_t>(load.positions, spec.vocab)));
  taken.take(
      std::max(load.threads * (spec.vocab * 16 + kArenas), rows * (spec.vocab * 12 + kArenas)));
  return taken;
}

Taken head(const ModelSpec& spec, const StepLoad& load) {
  const auto rows =
      std::min<std::int64_t>(load.rows, static_cast<std::int64_t>(OutputHead::kLogitRows));
  Taken taken;
  taken.floats(rows, spec.hidden);
  taken.floats(rows, spec.vocab);
  taken.take(rows * prepared_row(spec.hidden, 1, false));
  taken.inside(product_room(load, spec.hidden));
  taken.inside(sampling(spec, rows, load));
  return taken;
}

/// Of the step that passes those between their cuts.
std::int64_t express_rows(const StepLoad& load) {
  return std::min<std::int64_t>(load.rows, limits::kExpressRowsMax);
}

/// Of a step's rows, those whose experts a tensor-parallel rank asks for.
std::int64_t own_rows(const ModelSpec& spec, std::int64_t rows) {
  return rows / spec.rank.size + 1;
}

/// What ranks tell each other: a rank's parts of three sums or rows, which others may still be
/// reading, and theirs of one; outputs of experts, its own and theirs; of a step and an express
/// step, logits that are put together.
std::int64_t exchange_bytes(const ModelSpec& spec, const StepLoad& load, bool head) {
  if (spec.rank.alone()) return 0;
  const auto wire = static_cast<std::int64_t>(dtype_size(wire_type(load.numerics)));
  const auto logit_rows =
      std::min<std::int64_t>(load.rows, static_cast<std::int64_t>(OutputHead::kLogitRows));
  const std::int64_t parts = 3 + std::int64_t{spec.rank.size} - 1;
  const std::int64_t row = spec.hidden * (parts * 4 + 2 * spec.top_k() * wire);
  return (load.in_flight * load.rows + express_rows(load)) * row +
         (head ? 4 * logit_rows * spec.vocab * 4 : 0);
}

/// A Step's own: three rows of float32, at a cut the experts' input and outputs, and what the gates
/// of so many layers chose.
std::int64_t step_bytes(const ModelSpec& spec, Numerics numerics, std::int64_t layers,
                        std::int64_t rows) {
  const auto wire = static_cast<std::int64_t>(dtype_size(wire_type(numerics)));
  const std::int64_t row = 3 * 4 + (spec.top_k() > 0 ? wire : 0);
  const auto pair = static_cast<std::int64_t>(4 * sizeof(void*) + 2 * sizeof(MissingExpert) +
                                              sizeof(kernels::WeightedOutput) + 24);
  const std::int64_t choice = layers * (1 + rows * spec.top_k()) * 4;
  return rows * (spec.hidden * row + 64 + spec.top_k() * pair) +
         own_rows(spec, rows) * spec.top_k() * spec.hidden * wire + choice;
}

}  // namespace

std::uint64_t forward_scratch_bytes(const ModelSpec& spec, std::int32_t first, std::int32_t last,
                                    const StepLoad& load) {
  Taken all;
  for (std::int32_t i = first; i <= last; ++i) {
    const LayerSpec& layer = spec.layers[static_cast<std::size_t>(i)];
    all.inside(layer.attention.kind == AttentionKind::kMla ? mla(layer, load)
                                                           : grouped(layer, load));
    if (layer.has_experts()) all.inside(route(layer, load));
    if (layer.inner > 0)
      all.inside(gated_mlp(layer.weights, WeightRole::kUp, WeightRole::kDown, load.rows, load));
  }
  if (last + 1 == spec.num_layers()) all.inside(head(spec, load));
  return all.held();
}

std::uint64_t expert_scratch_bytes(const ModelSpec& spec, const StepLoad& load,
                                   std::int64_t pairs) {
  if (pairs == 0) return 0;
  Taken all;
  for (const LayerSpec& layer : spec.layers)
    if (layer.has_experts())
      all.inside(
          gated_mlp(layer.expert, WeightRole::kExpertUp, WeightRole::kExpertDown, pairs, load));
  return all.held();
}

std::uint64_t shard_memory_bytes(const ModelSpec& spec, std::int32_t first, std::int32_t last,
                                 const StepLoad& load) {
  std::uint64_t bytes = forward_scratch_bytes(spec, first, last, load);
  // Experts at hand, which shards of a device have in common; each counts its part: calls are taken
  // together up to so many rows, and an expert has each row once.
  const std::int64_t together = load.rows + ExpertForward::kRowsPerCall;
  bytes += expert_scratch_bytes(spec, load, std::min(load.rows * spec.top_k(), together));
  const std::int64_t layers = last - first + 1;
  bytes += static_cast<std::uint64_t>(load.in_flight *
                                          step_bytes(spec, load.numerics, layers, load.rows) +
                                      step_bytes(spec, load.numerics, layers, express_rows(load)));
  bytes += static_cast<std::uint64_t>(exchange_bytes(spec, load, last + 1 == spec.num_layers()));
  bytes += static_cast<std::uint64_t>(load.positions * spec.rope.dim * 4);
  if (last + 1 == spec.num_layers() && spec.rank.rank == 0)
    bytes += static_cast<std::uint64_t>(load.threads) * Sampler::bytes(spec.vocab);
  return bytes;
}

std::uint64_t group_memory_bytes(const ModelSpec& spec, const StepLoad& load, std::int64_t pairs) {
  const auto row = spec.hidden * static_cast<std::int64_t>(dtype_size(wire_type(load.numerics)));
  return expert_scratch_bytes(spec, load, pairs) + static_cast<std::uint64_t>(2 * pairs * row);
}

StepLoad step_load(const EngineOptions& engine, Numerics numerics, int threads) {
  StepLoad load;
  load.numerics = numerics;
  load.rows = std::min(engine.max_num_batched_tokens, limits::kStepRowsMax);
  load.positions = engine.max_model_len;
  load.in_flight = engine.pipeline_parallel_size;
  load.threads = threads;
  return load;
}

ComputeCosts compute_costs(std::span<const ModelSpec> ranks, const StepLoad& load) {
  return {load.rows, ranks.front().top_k(),
          [ranks, load](std::int32_t first, std::int32_t last) {
            std::uint64_t most = 0;
            for (const ModelSpec& rank : ranks)
              most = std::max(most, shard_memory_bytes(rank, first, last, load));
            return most;
          },
          [ranks, load](std::int64_t pairs) {
            return group_memory_bytes(ranks.front(), load, pairs);  // experts are whole
          },
          express_rows(load)};
}

ComputeCosts compute_costs(const ModelSpec& spec, const StepLoad& load) {
  return compute_costs(std::span(&spec, 1), load);
}

}  // namespace troupe
