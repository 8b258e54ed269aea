#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>
#include <limits>

namespace troupe {
namespace {

/// Words of up to this many bytes are merged by scanning; longer ones with a heap.
constexpr std::size_t kShortWordBytes = 64;
constexpr std::size_t kFilterBitsPerSlot = 8;

}  // namespace

Bpe::Bpe() {
  byte_ids_.fill(-1);
  reserve_merges(0);
}

bool Bpe::has_all_bytes() const {
  return std::none_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id < 0; });
}

void Bpe::reserve_merges(std::size_t count) {
  const std::size_t slots = std::bit_ceil(std::max<std::size_t>(count, 1) * 2);
  slots_.assign(slots, Slot{});
  filter_.assign(std::max<std::size_t>(slots * kFilterBitsPerSlot / 64, 1), 0);
}

namespace {
std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
}  // namespace

inline std::uint64_t Bpe::hash(std::uint64_t pair) {
  const std::uint64_t product = pair * 0x9E3779B97F4A7C15ull;
  return product ^ product >> 32;  // An odd factor mixes upwards.
}

inline std::size_t Bpe::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t i = hash(pair) & mask;
  while (slots_[i].pair != pair && slots_[i].pair != kEmpty) i = (i + 1) & mask;
  return i;
}

void Bpe::add_merge(TokenId left, TokenId right, Merge merge) {
  assert(left >= 0 && right >= 0 && merge.rank < kRanks);
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
  const std::uint64_t bit = hash(key) & (filter_.size() * 64 - 1);
  filter_[bit / 64] |= std::uint64_t{1} << bit % 64;
}

inline const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
  const std::uint64_t bit = hash(key) & (filter_.size() * 64 - 1);
  if ((filter_[bit / 64] >> bit % 64 & 1) == 0) return nullptr;
  const Slot& slot = slots_[slot_of(key)];
  return slot.pair == key ? &slot.merge : nullptr;
}

/// Notes the merge of the symbol at `position` with its right neighbour, if there is one.
void Bpe::push(Scratch& scratch, std::int32_t position) const {
  const Scratch::Symbol& left = scratch.symbols[static_cast<std::size_t>(position)];
  if (left.next < 0) return;
  const Merge* merge = find(left.id, scratch.symbols[static_cast<std::size_t>(left.next)].id);
  if (merge == nullptr) return;
  scratch.heap.push_back({merge->rank, static_cast<std::uint32_t>(position), merge->merged});
  std::push_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
}

void Bpe::set_whole_words(const std::vector<std::pair<std::string_view, TokenId>>& tokens,
                          bool ignore_merges) {
  words_.reserve(tokens.size());
  Scratch scratch(0);
  std::vector<TokenId> ids;
  for (const auto& [bytes, id] : tokens) {
    ids.clear();
    if (!ignore_merges) merge(bytes, scratch, ids);
    if (ignore_merges || (ids.size() == 1 && ids[0] == id)) words_.add(bytes, id);
  }
}

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  const std::uint64_t hash = word_hash(word);
  const TokenId whole = words_.find(word, hash);
  if (whole >= 0) {
    out.push_back(whole);
    return;
  }
  if (scratch.cache.find(word, hash, out)) return;
  const std::size_t before = out.size();
  merge(word, scratch, out);
  scratch.cache.keep(word, hash, out.data() + before, out.size() - before);
}

void Bpe::merge(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (word.size() <= kShortWordBytes) {
    merge_short(word, out);
  } else {
    merge_long(word, scratch, out);
  }
}

void Bpe::merge_short(std::string_view word, std::vector<TokenId>& out) const {
  constexpr std::int32_t kNone = std::numeric_limits<std::int32_t>::max();
  // A symbol lies where its first byte was. The key of its merge with the next symbol has the rank
  // above the position, so the least key is the leftmost of the lowest rank.
  std::array<std::int32_t, kShortWordBytes> keys;
  std::array<TokenId, kShortWordBytes> ids;
  std::array<TokenId, kShortWordBytes> merged;
  std::array<std::uint8_t, kShortWordBytes + 1> next;
  std::array<std::uint8_t, kShortWordBytes + 1> previous;
  std::size_t count = 0;
  for (const char c : word) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id >= 0) ids[count++] = id;
  }
  if (count == 0) return;
  const auto look_up = [&](std::size_t i) {
    const Merge* merge = next[i] < count ? find(ids[i], ids[next[i]]) : nullptr;
    keys[i] =
        merge != nullptr ? static_cast<std::int32_t>(merge->rank * kShortWordBytes + i) : kNone;
    merged[i] = merge != nullptr ? merge->merged : -1;
  };
  for (std::size_t i = 0; i <= count; ++i) {
    next[i] = static_cast<std::uint8_t>(i + 1);
    previous[i] = static_cast<std::uint8_t>(i - 1);
  }
  for (std::size_t i = 0; i < count; ++i) look_up(i);
  for (;;) {
    std::int32_t least = kNone;
    for (std::size_t i = 0; i < count; ++i) least = std::min(least, keys[i]);
    if (least == kNone) break;
    const std::size_t left = static_cast<std::size_t>(least) % kShortWordBytes;
    const std::size_t right = next[left];
    ids[left] = merged[left];
    keys[right] = kNone;
    next[left] = next[right];
    previous[next[left]] = static_cast<std::uint8_t>(left);
    look_up(left);
    if (left > 0) look_up(previous[left]);
  }
  for (std::size_t i = 0; i < count; i = next[i]) out.push_back(ids[i]);
}

void Bpe::merge_long(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  std::vector<Scratch::Symbol>& symbols = scratch.symbols;
  symbols.clear();
  scratch.heap.clear();
  for (const char c : word) {
    const TokenId id = byte_ids_[static_cast<unsigned char>(c)];
    if (id < 0) continue;
    const auto position = static_cast<std::int32_t>(symbols.size());
    symbols.push_back({id, position - 1, position + 1, false});
  }
  if (symbols.empty()) return;
  symbols.back().next = -1;
  for (std::size_t i = 0; i + 1 < symbols.size(); ++i) push(scratch, static_cast<std::int32_t>(i));

  while (!scratch.heap.empty()) {
    std::pop_heap(scratch.heap.begin(), scratch.heap.end(), std::greater<>());
    const Scratch::Candidate top = scratch.heap.back();
    scratch.heap.pop_back();
    Scratch::Symbol& left = symbols[top.position];
    if (left.removed || left.next < 0) continue;
    Scratch::Symbol& right = symbols[static_cast<std::size_t>(left.next)];
    // The neighbours may have changed since; it is the result that must still be the same.
    const Merge* current = find(left.id, right.id);
    if (current == nullptr || current->merged != top.merged) continue;
    left.id = top.merged;
    right.removed = true;
    left.next = right.next;
    if (left.next >= 0) {
      symbols[static_cast<std::size_t>(left.next)].previous =
          static_cast<std::int32_t>(top.position);
    }
    if (left.previous >= 0) push(scratch, left.previous);
    push(scratch, static_cast<std::int32_t>(top.position));
  }
  for (const Scratch::Symbol& symbol : symbols) {
    if (!symbol.removed) out.push_back(symbol.id);
  }
}

}  // namespace troupe
