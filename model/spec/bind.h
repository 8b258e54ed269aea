#pragma once

#include "model/spec/model_spec.h"
#include "model/tensor_directory.h"
#include "runtime/result.h"

namespace troupe {

/// A spec from config.json meets the checkpoint: every tensor of every weight is there with a dtype
/// and shape that will do, so that a defect shows when a checkpoint is opened, not when some worker
/// loads a part of it. What comes back says how each weight is stored: one that the config takes
/// for quantised may be plain, or the other way round. All experts of a layer must be stored alike.
/// The directory keeps what the spec says of its tensors. A tensor that the spec has no place for
/// is refused, since without it the model is another one; but for MTP layers and what changes no
/// answer here.
Result<ModelSpec> bind_spec(ModelSpec spec, TensorDirectory& directory);

/// Whether a tensor is of the MTP layers, which are not loaded.
bool is_of_mtp(const std::string& name, const ModelSpec& spec);

}  // namespace troupe
