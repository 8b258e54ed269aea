#pragma once

#include <cstdint>
#include <string>

#include "model/json_reader.h"
#include "model/spec/model_spec.h"

namespace troupe {

struct RopeConfig {
  RopeSpec rope;
  /// What DeepSeek's attention multiplies its scale with, for YaRN's mscale_all_dim.
  double score_factor = 1.0;
};

/// rope_theta, with rope_scaling, or with rope_parameters as transformers 5 writes it. `dim` is of
/// a head; partial_rotary_factor, or else `partial`, says how much of it turns.
Result<RopeConfig> read_rope(JsonReader& in, const std::string& file, std::int32_t dim,
                             kernels::RopePairs pairs, double partial = 1.0);

}  // namespace troupe
