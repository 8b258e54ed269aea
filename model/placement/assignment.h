#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace troupe {

/// Up to this size an assignment is exact; above it, where cubic time would be felt, greedy.
inline constexpr std::size_t kExactAssignmentMax = 256;

/// Gives each row a column of its own so that the sum of value[row][column] is as large as can be
/// (the Hungarian method). `value` is square. Returns the column of each row; deterministic.
std::vector<std::size_t> best_assignment(const std::vector<std::vector<std::int64_t>>& value);

}  // namespace troupe
