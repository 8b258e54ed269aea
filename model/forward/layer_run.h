#pragma once

#include <cstdint>

#include "kernels/attention.h"
#include "kernels/rope.h"
#include "kernels/stream.h"
#include "model/forward/step.h"
#include "model/kv_cache.h"
#include "model/spec/model_spec.h"
#include "model/weights.h"

namespace troupe {

/// What one layer of one step is computed with.
struct LayerRun {
  kernels::Stream& stream;
  const ModelSpec& model;
  const LayerSpec& spec;
  const LayerWeights& weights;
  const kernels::RopeTable& rope;
  KvCache& cache;
  std::int32_t layer = 0;  ///< absolute
  Step& step;

  const kernels::Weight& weight(WeightRole role) const { return weights.at(role); }
  /// Null if the layer has no such vector.
  const float* vector(WeightRole role) const { return weights.vector(role); }
  void turn(const kernels::Tensor& x) const {
    kernels::rope(stream, rope, model.rope.pairs, step.positions.data(), x);
  }
};

/// y = attention(x) of all rows of the step, whose keys and values go into the cache first.
/// x, y [rows, hidden].
void mla(const LayerRun& run, const kernels::Tensor& x, const kernels::Tensor& y);
void grouped_attention(const LayerRun& run, const kernels::Tensor& x, const kernels::Tensor& y);

// A layer with routed experts, x = step.normed: route, then their outputs come from wherever the
// experts are, then gather.

/// Chooses every row's experts and rounds what they will read.
void route(const LayerRun& run);
/// h += shared (step.branch, if the layer has any), then += each expert's weighted output by rising
/// expert id. h: rows `first` and on.
void gather(const LayerRun& run, const kernels::Tensor& h, std::int64_t first);

}  // namespace troupe
