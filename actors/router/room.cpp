#include "actors/router/room.h"

#include <algorithm>

#include "actors/router/journal_words.h"
#include "runtime/limits.h"

namespace troupe {

std::size_t Room::Share::wanted() const {
  return std::min<std::size_t>(max - std::min(max, held), kCountedAheadMax);
}

bool Room::takes(const PreparedRequest& request) const {
  const std::size_t each = std::min(request.max_tokens, kCountedAheadMax);
  const std::size_t words = prompt_words(request) + request.n * each * token_words(request);
  const auto known = owners_.find(request.owner());
  const Sums own = known == owners_.end() ? Sums{} : known->second;
  const auto may_have = [&](std::size_t Sums::*what, std::size_t wanted, std::size_t max) {
    return key_shares_.may_have(request.owner(), own.*what, wanted, total_.*what, max);
  };
  return own.paused == 0 && may_have(&Sums::requests, 1, limits::kRequestsMax) &&
         may_have(&Sums::sequences, request.n, limits::kSequencesMax) &&
         may_have(&Sums::words, words, words_max_);
}

void Room::add_words(std::uint64_t owner, std::size_t words) {
  total_.words += words;
  owners_[owner].words += words;
}

void Room::take_words(std::uint64_t owner, std::size_t words) {
  total_.words -= words;
  owners_[owner].words -= words;
}

void Room::count(Share& share, std::size_t ahead) {
  add_words(share.owner, ahead * share.each);
  take_words(share.owner, share.ahead * share.each);
  share.ahead = ahead;
}

void Room::pause(Share& share, bool paused) {
  if (share.paused == paused) return;
  share.paused = paused;
  for (Sums* sums : {&total_, &owners_[share.owner]}) {
    if (paused)
      ++sums->paused;
    else
      --sums->paused;
  }
}

void Room::add(SequenceId first, const PreparedRequest& request) {
  for (Sums* sums : {&total_, &owners_[request.owner()]}) {
    ++sums->requests;
    sums->sequences += request.n;
  }
  for (std::uint32_t choice = 0; choice < request.n; ++choice) {
    Share& share = shares_[SequenceId{first.value + choice}];
    share.owner = request.owner();
    share.prompt = choice == 0 ? prompt_words(request) : 0;
    share.each = token_words(request);
    share.max = request.max_tokens;
    add_words(share.owner, share.prompt);
    count(share, share.wanted());
  }
}

void Room::grow(SequenceId sequence, std::size_t tokens) {
  Share& share = shares_.at(sequence);
  const std::size_t rest = share.ahead - std::min(share.ahead, tokens);
  share.held += tokens;
  add_words(share.owner, tokens * share.each);
  count(share, rest > 0 || share.paused ? rest : share.wanted());
}

void Room::finish(SequenceId sequence) {
  Share& share = shares_.at(sequence);
  pause(share, false);
  share.finished = true;
  count(share, 0);
}

void Room::remove(SequenceId first, const PreparedRequest& request) {
  for (std::uint32_t choice = 0; choice < request.n; ++choice) {
    const auto found = shares_.find(SequenceId{first.value + choice});
    pause(found->second, false);
    take_words(request.owner(), found->second.counted());
    shares_.erase(found);
  }
  const auto owner = owners_.find(request.owner());
  for (Sums* sums : {&total_, &owner->second}) {
    --sums->requests;
    sums->sequences -= request.n;
  }
  if (owner->second.requests == 0) owners_.erase(owner);
}

std::optional<SequenceId> Room::pause_one() {
  if (total_.words <= words_max_) return std::nullopt;
  const auto goes_on = [](const auto& entry) { return entry.second.goes_on(); };
  const auto oldest = std::find_if(shares_.begin(), shares_.end(), goes_on);
  std::map<std::uint64_t, SequenceId> newest;  // of each owner
  for (auto entry = oldest; entry != shares_.end(); ++entry)
    if (entry != oldest && goes_on(*entry)) newest[entry->second.owner] = entry->first;
  const auto most = std::ranges::max_element(newest, {}, [&](const auto& entry) {
    return static_cast<double>(owners_.at(entry.first).words) / key_shares_.of(entry.first).weight;
  });
  if (most == newest.end()) return std::nullopt;
  Share& share = shares_.at(most->second);
  pause(share, true);
  count(share, 0);
  return most->second;
}

std::optional<SequenceId> Room::resume_one() {
  if (total_.paused == 0) return std::nullopt;
  const auto oldest = std::find_if(shares_.begin(), shares_.end(),
                                   [](const auto& entry) { return entry.second.paused; });
  const bool first = std::all_of(shares_.begin(), oldest,
                                 [](const auto& entry) { return entry.second.finished; });
  Share& share = oldest->second;
  if (!first && total_.words + share.wanted() * share.each > words_max_) return std::nullopt;
  pause(share, false);
  count(share, share.wanted());
  return oldest->first;
}

std::string Room::violation() const {
  Sums total;
  std::map<std::uint64_t, Sums> owners;
  bool others = false;
  for (const auto& [id, share] : shares_) {
    for (Sums* sums : {&total, &owners[share.owner]}) {
      ++sums->sequences;
      sums->words += share.counted();
      sums->paused += share.paused ? 1 : 0;
    }
    others = others || share.goes_on();
  }
  for (const auto& [owner, sums] : owners_) {
    total.requests += sums.requests;
    owners[owner].requests = sums.requests;
  }
  if (total != total_ || owners != owners_) return "the room for requests is miscounted";
  if (total.paused > 0 && !others) return "all pause, and nobody goes on";
  return "";
}

}  // namespace troupe
