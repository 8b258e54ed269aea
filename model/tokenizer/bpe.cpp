#include "model/tokenizer/bpe.h"

#include <algorithm>
#include <bit>
#include <cassert>
#include <functional>

namespace troupe {

Bpe::Bpe() : slots_(2) { byte_ids_.fill(-1); }

bool Bpe::has_all_bytes() const {
  return std::none_of(byte_ids_.begin(), byte_ids_.end(), [](TokenId id) { return id < 0; });
}

void Bpe::reserve_merges(std::size_t count) {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(count, 1) * 2), Slot{});
}

std::size_t Bpe::slot_of(std::uint64_t pair) const {
  const std::size_t mask = slots_.size() - 1;
  // Multiplying by an odd constant mixes upwards, so the top bits choose.
  std::size_t i = (pair * 0x9E3779B97F4A7C15ull) >> 20 & mask;
  while (slots_[i].pair != pair && slots_[i].pair != kEmpty) i = (i + 1) & mask;
  return i;
}

namespace {
std::uint64_t pair_key(TokenId left, TokenId right) {
  return std::uint64_t{static_cast<std::uint32_t>(left)} << 32 | static_cast<std::uint32_t>(right);
}
}  // namespace

void Bpe::add_merge(TokenId left, TokenId right, Merge merge) {
  assert(left >= 0 && right >= 0);
  const std::uint64_t key = pair_key(left, right);
  slots_[slot_of(key)] = {key, merge};
}

const Bpe::Merge* Bpe::find(TokenId left, TokenId right) const {
  const std::uint64_t key = pair_key(left, right);
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

void Bpe::encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const {
  if (!words_.empty()) {
    const auto whole = words_.find(std::string(word));
    if (whole != words_.end()) {
      out.push_back(whole->second);
      return;
    }
  }
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
