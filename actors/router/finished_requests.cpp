#include "actors/router/finished_requests.h"

#include <algorithm>

namespace troupe {

void FinishedRequests::add(std::uint64_t request, std::uint64_t owner, std::size_t words,
                           TimePoint ended) {
  const TimePoint until = ended + limits::kFinishedKept;
  if (!kept_.emplace(request, Kept{owner, words, until}).second) return;
  words_ += words;
  owners_[owner].words += words;
  owners_[owner].by_age.emplace(until, request);
}

void FinishedRequests::remove(std::uint64_t request) {
  const auto found = kept_.find(request);
  if (found == kept_.end()) return;
  const auto owner = owners_.find(found->second.owner);
  words_ -= found->second.words;
  owner->second.words -= found->second.words;
  owner->second.by_age.erase({found->second.until, request});
  if (owner->second.by_age.empty()) owners_.erase(owner);
  kept_.erase(found);
}

std::optional<std::uint64_t> FinishedRequests::next_to_go(TimePoint now) const {
  const auto oldest = [](const auto& entry) { return *entry.second.by_age.begin(); };
  const auto first = std::ranges::min_element(owners_, {}, oldest);
  if (first == owners_.end()) return std::nullopt;
  if (oldest(*first).first <= now) return oldest(*first).second;
  if (words_ <= limits::kFinishedWordsMax) return std::nullopt;
  const auto most = std::ranges::max_element(owners_, {}, [&](const auto& entry) {
    return static_cast<double>(entry.second.words) / shares_.of(entry.first).weight;
  });
  return oldest(*most).second;
}

std::optional<TimePoint> FinishedRequests::next_end() const {
  std::optional<TimePoint> end;
  for (const auto& [id, owner] : owners_) {
    const TimePoint first = owner.by_age.begin()->first;
    end = std::min(end.value_or(first), first);
  }
  return end;
}

}  // namespace troupe
