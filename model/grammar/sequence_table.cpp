#include "model/grammar/sequence_table.h"

#include <algorithm>

namespace troupe::grammar {
namespace {

std::uint64_t hash_of(std::span<const std::uint32_t> sequence) {
  std::uint64_t hash = 0x9E3779B97F4A7C15ull + sequence.size();
  for (const std::uint32_t value : sequence) {
    hash = (hash ^ value) * 0xFF51AFD7ED558CCDull;
    hash ^= hash >> 32;
  }
  return hash;
}

}  // namespace

std::size_t SequenceTable::slot_of(std::span<const std::uint32_t> sequence) const {
  const std::size_t mask = slots_.size() - 1;
  std::size_t slot = hash_of(sequence) & mask;
  while (slots_[slot] != 0) {
    const auto other = (*this)[slots_[slot] - 1];
    if (std::equal(sequence.begin(), sequence.end(), other.begin(), other.end())) break;
    slot = (slot + 1) & mask;
  }
  return slot;
}

std::uint32_t SequenceTable::find(std::span<const std::uint32_t> sequence) const {
  const std::uint32_t entry = slots_[slot_of(sequence)];
  return entry == 0 ? size() : entry - 1;
}

std::uint32_t SequenceTable::intern(std::span<const std::uint32_t> sequence) {
  std::size_t slot = slot_of(sequence);
  if (slots_[slot] != 0) return slots_[slot] - 1;
  if (slots_for(size() + 1) > slots_.size()) {
    grow();
    slot = slot_of(sequence);
  }
  pool_.insert(pool_.end(), sequence.begin(), sequence.end());
  ends_.push_back(pool_.size());
  slots_[slot] = size();
  return size() - 1;
}

void SequenceTable::grow() {
  std::vector<std::uint32_t> slots(slots_.size() * 2, 0);
  slots_.swap(slots);
  for (std::uint32_t id = 0; id < size(); ++id) slots_[slot_of((*this)[id])] = id + 1;
}

void SequenceTable::shrink(std::uint32_t size_left) {
  // Entries leave in the reverse order of their coming: none that stays was placed behind one.
  while (size() > size_left) {
    slots_[slot_of((*this)[size() - 1])] = 0;
    ends_.pop_back();
    pool_.resize(ends_.back());
  }
}

}  // namespace troupe::grammar
