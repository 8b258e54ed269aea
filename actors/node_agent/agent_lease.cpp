#include "actors/node_agent/agent_lease.h"

#include <algorithm>
#include <iterator>

namespace troupe {
namespace {

/// Renews that wait for their answer; a lease has room for far fewer.
constexpr std::size_t kRenewsMax = 64;

}  // namespace

void AgentLease::begin(Duration length, Duration keep_for) {
  length_ = length;
  keep_for_ = keep_for;
  keep_until_.reset();
  end_ = asked_ + length;
  next_renew_ = asked_ + limits::kRenewEvery;
  waits_since_.reset();
  number_ = heard_ = 0;
  renews_.clear();
}

std::uint64_t AgentLease::renew(TimePoint now) {
  next_renew_ = now + limits::kRenewEvery;
  renews_[++number_] = now;
  if (renews_.size() > kRenewsMax) renews_.erase(renews_.begin());
  return number_;
}

void AgentLease::renewed(std::uint64_t number) {
  const auto it = renews_.find(number);
  if (it == renews_.end()) return;  // answered before
  end_ = std::max(end_, it->second + length_);
  heard_ = number;
  renews_.erase(renews_.begin(), std::next(it));
}

std::string AgentLease::violation() const {
  if (renews_.size() > kRenewsMax) return "more renewals wait for an answer than may";
  if (!renews_.empty() && renews_.rbegin()->first > number_)
    return "a renewal waits for an answer that was never sent";
  return {};
}

}  // namespace troupe
