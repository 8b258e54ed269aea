#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "model/checkpoint.h"
#include "model/config.h"
#include "runtime/result.h"

namespace troupe {

/// A tensor that a model needs, under its published name.
struct TensorSpec {
  std::string name;
  std::vector<std::int64_t> shape;
};

/// What tensor parallelism splits of a matrix as it is stored, [outputs, inputs].
enum class SplitAxis : std::uint8_t { kNone, kRows, kColumns };
SplitAxis split_axis(std::string_view tensor);

// Names by part; the loaders and the check of a whole checkpoint share them.
std::string layer_prefix(std::int32_t layer);                         ///< "model.layers.3."
std::string expert_prefix(std::int32_t layer, std::int32_t expert);   ///< "...mlp.experts.7."

std::vector<TensorSpec> attention_tensors(const ModelConfig& config, std::int32_t layer);
/// A gated MLP of the given width: gate_proj, up_proj, down_proj.
std::vector<TensorSpec> mlp_tensors(const ModelConfig& config, const std::string& prefix,
                                    std::int64_t width);
std::vector<TensorSpec> feed_forward_tensors(const ModelConfig& config, std::int32_t layer);

/// True when every tensor of the model is there with a dtype and shape that will do, so that a
/// defect shows when a checkpoint is opened, not when some worker loads a part of it. MTP layers
/// are ignored.
Status check_tensors(const Checkpoint& checkpoint);

}  // namespace troupe
