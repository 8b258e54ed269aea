#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "model/spec/model_spec.h"
#include "runtime/dtype.h"

namespace troupe {

/// Which axis of a tensor as it is stored, [rows, columns, ...], tensor parallelism splits.
enum class StoredAxis : std::uint8_t { kNone, kRows, kColumns };

enum class PartKind : std::uint8_t { kScales, kZeros, kShape, kCodes };

/// One tensor of the checkpoint that a weight is stored in.
struct StoredPart {
  PartKind kind = PartKind::kCodes;
  std::string name;                 ///< of the whole tensor, of all experts if they are stacked
  std::span<const DType> dtypes;    ///< that it may have
  std::vector<std::int64_t> shape;  ///< of the whole tensor
  StoredAxis split = StoredAxis::kNone;
};

/// All tensors of a weight; its codes come last. `expert` counts for those of routed experts.
std::vector<StoredPart> stored_parts(const WeightSpec& weight, std::int32_t expert = 0);

/// The same weight, stored otherwise.
WeightSpec stored_as(const WeightSpec& weight, const StoredForm& form);

}  // namespace troupe
