#include "tools/troupe/console/moves.h"

#include <algorithm>
#include <iterator>

namespace troupe::console {
namespace {

std::vector<std::pair<std::int32_t, std::string>> named(const ExpertFacts& experts,
                                                        const LayerFacts& layer) {
  std::vector<std::pair<std::int32_t, std::string>> copies;
  copies.reserve(layer.slots.size());
  for (const auto& slot : layer.slots)
    copies.emplace_back(slot.expert, experts.devices[slot.device]);
  std::sort(copies.begin(), copies.end());
  return copies;
}

/// Most statuses tell of no change at all; that is seen without a string.
bool same(const ExpertFacts& a, const ExpertFacts& b, const LayerFacts& x, const LayerFacts& y) {
  return x.slots == y.slots && a.devices == b.devices;
}

}  // namespace

std::vector<Move> moves_between(const ExpertFacts& before, const ExpertFacts& after) {
  std::vector<Move> moves;
  if (before.layers.empty() || after.layers.empty()) return moves;
  for (const LayerFacts& now : after.layers) {
    const LayerFacts* old = before.find(now.layer);
    if (!old || same(before, after, *old, now)) continue;
    const auto was = named(before, *old), is = named(after, now);
    std::vector<std::pair<std::int32_t, std::string>> lost, gained;
    std::set_difference(was.begin(), was.end(), is.begin(), is.end(), std::back_inserter(lost));
    std::set_difference(is.begin(), is.end(), was.begin(), was.end(), std::back_inserter(gained));
    // Both are sorted by expert: a lost and a gained copy of the same one are a move.
    auto from = lost.begin();
    auto to = gained.begin();
    while (from != lost.end() || to != gained.end()) {
      if (to == gained.end() || (from != lost.end() && from->first < to->first)) {
        moves.push_back({now.layer, from->first, from->second, ""});
        ++from;
      } else if (from == lost.end() || to->first < from->first) {
        moves.push_back({now.layer, to->first, "", to->second});
        ++to;
      } else {
        moves.push_back({now.layer, to->first, from->second, to->second});
        ++from, ++to;
      }
    }
  }
  return moves;
}

void MoveLog::add(const ExpertFacts& before, const ExpertFacts& after, TimePoint now) {
  for (Move& move : moves_between(before, after)) {
    recent_.push_back({std::move(move), now});
    ++total_;
  }
  while (recent_.size() > kKeptMax) recent_.pop_front();
  forget_old(now);
}

void MoveLog::forget_old(TimePoint now) {
  while (!recent_.empty() && now - recent_.front().at > kShown) recent_.pop_front();
}

std::vector<bool> MoveLog::moved(std::int64_t layer, std::int32_t experts) const {
  std::vector<bool> moved(static_cast<std::size_t>(experts));
  for (const Entry& entry : recent_)
    if (entry.move.layer == layer && entry.move.expert < experts)
      moved[static_cast<std::size_t>(entry.move.expert)] = true;
  return moved;
}

}  // namespace troupe::console
