#include "actors/router/room.h"

#include <algorithm>

namespace troupe {

std::size_t Room::Share::wanted() const {
  return std::min<std::size_t>(max - std::min(max, held), kCountedAheadMax);
}

bool Room::takes(const PreparedRequest& request) const {
  const std::size_t each = std::min(request.max_tokens, kCountedAheadMax);
  const std::size_t wanted = request.prompt.size() + request.n * each;
  return paused_ == 0 && counted_ + wanted <= tokens_max_;
}

void Room::count(Share& share, std::size_t ahead) {
  counted_ += ahead;
  counted_ -= share.ahead;
  share.ahead = ahead;
}

void Room::add(SequenceId first, const PreparedRequest& request) {
  for (std::uint32_t choice = 0; choice < request.n; ++choice) {
    Share& share = shares_[SequenceId{first.value + choice}];
    share.prompt = choice == 0 ? request.prompt.size() : 0;
    share.max = request.max_tokens;
    counted_ += share.prompt;
    count(share, share.wanted());
  }
}

void Room::grow(SequenceId sequence, std::size_t tokens) {
  Share& share = shares_.at(sequence);
  const std::size_t rest = share.ahead - std::min(share.ahead, tokens);
  share.held += tokens;
  counted_ += tokens;
  count(share, rest > 0 || share.paused ? rest : share.wanted());
}

void Room::finish(SequenceId sequence) {
  Share& share = shares_.at(sequence);
  if (share.paused) --paused_;
  share.paused = false;
  share.finished = true;
  count(share, 0);
}

void Room::remove(SequenceId first, const PreparedRequest& request) {
  for (std::uint32_t choice = 0; choice < request.n; ++choice) {
    const auto found = shares_.find(SequenceId{first.value + choice});
    if (found->second.paused) --paused_;
    counted_ -= found->second.counted();
    shares_.erase(found);
  }
}

std::optional<SequenceId> Room::pause_one() {
  if (counted_ <= tokens_max_) return std::nullopt;
  const auto goes_on = [](const auto& entry) {
    return !entry.second.paused && !entry.second.finished;
  };
  const auto newest = std::find_if(shares_.rbegin(), shares_.rend(), goes_on);
  const auto oldest = std::find_if(shares_.begin(), shares_.end(), goes_on);
  if (oldest == shares_.end() || newest->first == oldest->first) return std::nullopt;
  newest->second.paused = true;
  ++paused_;
  count(newest->second, 0);
  return newest->first;
}

std::optional<SequenceId> Room::resume_one() {
  if (paused_ == 0) return std::nullopt;
  const auto oldest = std::find_if(shares_.begin(), shares_.end(),
                                   [](const auto& entry) { return entry.second.paused; });
  const bool first = std::all_of(shares_.begin(), oldest,
                                 [](const auto& entry) { return entry.second.finished; });
  Share& share = oldest->second;
  if (!first && counted_ + share.wanted() > tokens_max_) return std::nullopt;
  share.paused = false;
  --paused_;
  count(share, share.wanted());
  return oldest->first;
}

std::string Room::violation() const {
  std::size_t counted = 0, paused = 0;
  bool others = false;
  for (const auto& [id, share] : shares_) {
    counted += share.counted();
    paused += share.paused ? 1 : 0;
    others = others || !(share.paused || share.finished);
  }
  if (counted != counted_ || paused != paused_) return "the room in the journal is miscounted";
  if (paused > 0 && !others) return "all pause, and nobody goes on";
  return "";
}

}  // namespace troupe
