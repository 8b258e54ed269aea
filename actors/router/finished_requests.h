#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "actors/router/key_shares.h"
#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// Which requests that are over are kept for those who ask again: the newest of each owner, within
/// bounds of memory and time. Where memory lacks, the oldest goes of the owner that holds the most
/// for its weight. A part of the Router.
class FinishedRequests {
 public:
  explicit FinishedRequests(KeyShares shares = {}) : shares_(std::move(shares)) {}

  void add(std::uint64_t request, std::uint64_t owner, std::size_t words, TimePoint ended);
  void remove(std::uint64_t request);
  std::size_t size() const { return kept_.size(); }

  /// One whose time is over, or for which there is no room.
  std::optional<std::uint64_t> next_to_go(TimePoint now) const;
  /// When the time of the oldest is over.
  std::optional<TimePoint> next_end() const;

 private:
  struct Kept {
    std::uint64_t owner = 0;
    std::size_t words = 0;
    TimePoint until;
  };
  struct Owner {
    std::set<std::pair<TimePoint, std::uint64_t>> by_age;  // the oldest first
    std::size_t words = 0;
  };
  KeyShares shares_;
  std::map<std::uint64_t, Kept> kept_;
  std::map<std::uint64_t, Owner> owners_;  ///< that have one
  std::size_t words_ = 0;
};

}  // namespace troupe
