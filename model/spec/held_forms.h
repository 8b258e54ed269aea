#pragma once

#include <vector>

#include "kernels/weight.h"
#include "model/spec/model_spec.h"
#include "runtime/numerics.h"

namespace troupe {

/// What a weight becomes in memory.
struct HeldForm {
  WeightRole role = WeightRole::kCount;
  kernels::StoredMatrix stored;  ///< as of stored_matrix()
  kernels::PackOptions options;
  std::int64_t groups = 1;
};

/// How a weight is stored, for the kernels: the tensor, and what a tensor-parallel rank takes of
/// it, whose scales may stand for smaller blocks. Where it has scales or zeros they point at
/// something that is not to be read: the loader puts its own there.
kernels::StoredMatrix whole_matrix(const WeightSpec& weight);
kernels::StoredMatrix stored_matrix(const WeightSpec& weight);

/// One form, or two: kv_b_proj is split by head into the map of q into the latent space (W_UK) and
/// the map of the attended latent out of it (W_UV). DeepSeek-V2, arXiv 2405.04434, section 2.1.
std::vector<HeldForm> held_forms(const WeightSpec& weight, const AttentionSpec& attention,
                                 Numerics numerics);

/// The memory that they take.
std::uint64_t held_bytes(const WeightSpec& weight, const AttentionSpec& attention,
                         Numerics numerics);

}  // namespace troupe
