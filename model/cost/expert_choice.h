#pragma once

#include <cstdint>
#include <span>
#include <vector>

/// Which experts the rows of a step choose, on average.
namespace troupe {

/// The chance of each expert of a layer to be among a row's `top_k`; they add up to `top_k`.
using ExpertChances = std::vector<double>;

/// The busiest expert is chosen `skew` times as often as the mean, the others fall as 1 / rank^s.
/// `turn` moves the ranks on, so that layers differ. `skew` is from 1 to experts / top_k, where the
/// busiest is chosen by every row.
ExpertChances chances_of_skew(std::int32_t experts, std::int32_t top_k, double skew,
                              std::int32_t turn = 0);
/// As often as was counted; uniform if nothing was. No chance is above 1.
ExpertChances chances_of_counts(std::span<const double> counts, std::int32_t top_k);
/// Of the busiest over the mean.
double skew_of(const ExpertChances& chances);

/// How many of the experts at least one of `rows` chooses, which choose independently: the sum of
/// 1 - (1 - p)^rows.
double expected_hits(const ExpertChances& chances, double rows);

}  // namespace troupe
