#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "runtime/key_share.h"

namespace troupe {

/// What of the cluster each owner of requests may have. Whoever is not named, such as those of a
/// key that is no longer there, has a weight of 1 and no bound.
class KeyShares {
 public:
  KeyShares() = default;
  explicit KeyShares(std::vector<KeyShare> shares) : shares_(std::move(shares)) {}

  KeyShare of(std::uint64_t owner) const {
    for (const KeyShare& share : shares_)
      if (share.owner == owner) return share;
    return {.owner = owner};
  }

  /// Whether an owner that holds `held` of something may have `wanted` more, of which all together
  /// hold `total` and may hold `max`. With several keys each may hold as much as is left, times its
  /// weight: one alone half of it, two a third each. So something is always left for those who have
  /// nothing yet, who may take what they find.
  bool may_have(std::uint64_t owner, std::size_t held, std::size_t wanted, std::size_t total,
                std::size_t max) const {
    if (total + wanted > max) return false;
    if (shares_.size() < 2 || held == 0) return true;
    return static_cast<double>(held + wanted) <=
           static_cast<double>(of(owner).weight) * static_cast<double>(max - total);
  }

 private:
  std::vector<KeyShare> shares_;
};

}  // namespace troupe
