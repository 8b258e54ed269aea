#pragma once

#include <cstdint>

#include "model/spec/spec_builder.h"

namespace troupe {

/// What a family has where its config says nothing.
struct RopeDefaults {
  double theta = 10000.0;
  double partial = 1.0;  ///< how much of a head turns
};

/// Reads the rotary angles of heads of `dim` into the spec, as transformers 5 does
/// (RotaryEmbeddingConfigMixin): from rope_scaling, if that is there and not empty, else from
/// rope_parameters; then from the keys beside them. Two that contradict each other are refused.
/// YaRN lengthens the context to what it was made for, if that is more than
/// max_position_embeddings. Needs read_common() before it.
///
/// What comes back is what DeepSeek's attention multiplies its scale with, for YaRN's
/// mscale_all_dim; else 1.
Result<double> read_rope(SpecBuilder& b, std::int32_t dim, kernels::RopePairs pairs,
                         const RopeDefaults& defaults = {});

}  // namespace troupe
