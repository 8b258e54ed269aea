#include "actors/replica/kv_blocks.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe {

KvBlocks::KvBlocks(const Options& options)
    : block_size_(options.block_size),
      keep_(options.keep),
      blocks_(static_cast<std::size_t>(options.blocks)) {
  assert(options.block_size >= 1);
  free_.reserve(blocks_.size());
  for (std::int32_t block = total() - 1; block >= 0; --block) free_.push_back(block);
  if (!keep_) return;
  hash_.add(std::as_bytes(std::span(options.identity)));
  root_ = hash_.finish();
}

// --- What is there ------------------------------------------------------------------------------

void KvBlocks::extend(std::span<const TokenId> tokens, std::vector<KvKey>& keys) {
  if (!keep_) return;
  const auto size = static_cast<std::size_t>(block_size_);
  while ((keys.size() + 1) * size <= tokens.size()) {
    hash_.add(keys.empty() ? root_ : keys.back());
    hash_.add(std::as_bytes(tokens.subspan(keys.size() * size, size)));
    keys.push_back(hash_.finish());
  }
}

KvPrefix KvBlocks::find(KvKeys sequence, std::int32_t positions_max) const {
  KvPrefix prefix;
  for (const KvKey& key : sequence) {
    if ((prefix.blocks + 1) * block_size_ > positions_max) break;
    const auto found = by_key_.find(key);
    if (found == by_key_.end()) break;
    ++prefix.blocks;
    if (blocks_[static_cast<std::size_t>(found->second)].holders == 0) ++prefix.idle;
  }
  return prefix;
}

void KvBlocks::share(KvKeys sequence, KvPrefix prefix, KvTable& table) {
  if (prefix.blocks == 0) return;
  open(table);
  for (; table.written < prefix.blocks; ++table.written) {
    const std::int32_t index = by_key_.at(sequence[static_cast<std::size_t>(table.written)]);
    Block& block = blocks_[static_cast<std::size_t>(index)];
    if (block.holders++ == 0) idle_.erase(std::exchange(block.idle_since, 0));
    table.blocks.push_back(index);
  }
}

// --- Taken, filled, given back ------------------------------------------------------------------

void KvBlocks::open(KvTable& table) {
  assert(table.slot < 0 && table.blocks.empty());
  table.age = age_;
  if (free_slots_.empty()) free_slots_.push_back(slots_++);
  table.slot = free_slots_.back();
  free_slots_.pop_back();
}

std::int32_t KvBlocks::take_one() {
  if (!free_.empty()) {
    const std::int32_t index = free_.back();
    free_.pop_back();
    return index;
  }
  const std::int32_t index = idle_.begin()->second;
  idle_.erase(idle_.begin());
  Block& block = blocks_[static_cast<std::size_t>(index)];
  block.idle_since = 0;
  unkey(block);
  return index;
}

void KvBlocks::take(std::int32_t count, KvTable& table) {
  assert(count >= 0 && count <= available());
  if (count > 0 && table.slot < 0) open(table);
  for (; count > 0; --count) {
    const std::int32_t index = take_one();
    blocks_[static_cast<std::size_t>(index)].holders = 1;
    table.blocks.push_back(index);
  }
}

void KvBlocks::commit(KvKeys sequence, std::int32_t positions, KvTable& table) {
  if (!keep_ || table.age != age_) return;
  for (; (table.written + 1) * block_size_ <= positions; ++table.written) {
    const KvKey& key = sequence[static_cast<std::size_t>(table.written)];
    const std::int32_t index = table.blocks[static_cast<std::size_t>(table.written)];
    // Of two sequences that computed the same at once, the first one's blocks are found again.
    if (!by_key_.emplace(key, index).second) continue;
    Block& block = blocks_[static_cast<std::size_t>(index)];
    block.keyed = true;
    block.key = key;
  }
}

/// The last block is idle for longer than those before it: without them it is not found.
void KvBlocks::give_back(KvTable& table) {
  for (auto index = table.blocks.rbegin(); index != table.blocks.rend(); ++index) {
    Block& block = blocks_[static_cast<std::size_t>(*index)];
    assert(block.holders > 0);
    if (--block.holders > 0) continue;
    if (block.keyed) {
      block.idle_since = next_idle_++;
      idle_.emplace(block.idle_since, *index);
    } else {
      free_.push_back(*index);
    }
  }
  if (table.slot >= 0) free_slots_.push_back(table.slot);
  table = {};
}

std::int32_t KvBlocks::freed_by(std::span<const KvTable* const> tables) const {
  std::unordered_map<std::int32_t, std::int32_t> held;
  std::int32_t freed = 0;
  for (const KvTable* table : tables)
    for (const std::int32_t index : table->blocks)
      if (++held[index] == blocks_[static_cast<std::size_t>(index)].holders) ++freed;
  return freed;
}

void KvBlocks::unkey(Block& block) {
  by_key_.erase(block.key);
  block.keyed = false;
}

void KvBlocks::forget() {
  ++age_;
  for (Block& block : blocks_)
    if (block.keyed) unkey(block);
  for (const auto& [since, index] : std::exchange(idle_, {})) {
    blocks_[static_cast<std::size_t>(index)].idle_since = 0;
    free_.push_back(index);
  }
}

// --- Invariants ---------------------------------------------------------------------------------

std::string KvBlocks::violation(std::span<const KvTable* const> tables) const {
  std::vector<std::int32_t> holders(blocks_.size());
  for (const KvTable* table : tables)
    for (const std::int32_t index : table->blocks) {
      if (index < 0 || index >= total()) return "a sequence holds a block that there is not";
      ++holders[static_cast<std::size_t>(index)];
    }
  std::size_t keyed = 0;
  for (std::int32_t index = 0; index < total(); ++index) {
    if (auto found = violation_of_block(index, holders[static_cast<std::size_t>(index)]);
        !found.empty())
      return "block " + std::to_string(index) + found;
    if (blocks_[static_cast<std::size_t>(index)].keyed) ++keyed;
  }
  if (keyed != by_key_.size()) return "a key stands for a block that does not hold it";
  std::vector<bool> free(blocks_.size());
  for (const std::int32_t index : free_) {
    const Block& block = blocks_[static_cast<std::size_t>(index)];
    if (block.holders > 0 || block.keyed || free[static_cast<std::size_t>(index)])
      return "block " + std::to_string(index) + " is free and used, or free twice";
    free[static_cast<std::size_t>(index)] = true;
  }
  const auto used = std::ranges::count_if(holders, [](std::int32_t count) { return count > 0; });
  if (static_cast<std::size_t>(used) + free_.size() + idle_.size() != blocks_.size())
    return "a block is neither free nor used nor kept";
  return violation_of(tables);
}

/// Each has a slot of its own, and writes only to what nobody else holds or finds.
std::string KvBlocks::violation_of(std::span<const KvTable* const> tables) const {
  std::vector<bool> slots(static_cast<std::size_t>(slots_));
  for (const std::int32_t slot : free_slots_) slots[static_cast<std::size_t>(slot)] = true;
  for (const KvTable* table : tables) {
    if ((table->slot < 0) != table->blocks.empty()) return "a table has no slot, or needs none";
    if (table->slot < 0) continue;
    if (table->slot >= slots_ || slots[static_cast<std::size_t>(table->slot)])
      return "two tables have the same slot, or a free one";
    slots[static_cast<std::size_t>(table->slot)] = true;
    const auto size = static_cast<std::int32_t>(table->blocks.size());
    if (table->written > size || table->told > size) return "a table is shorter than it was";
    for (std::int32_t i = table->written; i < size; ++i) {
      const Block& block =
          blocks_[static_cast<std::size_t>(table->blocks[static_cast<std::size_t>(i)])];
      if (block.holders != 1 || block.keyed)
        return "a sequence may write to a block that others hold or find";
    }
  }
  if (std::ranges::count(slots, true) != slots_) return "a slot is neither free nor used";
  return {};
}

std::string KvBlocks::violation_of_block(std::int32_t index, std::int32_t holders) const {
  const Block& block = blocks_[static_cast<std::size_t>(index)];
  if (block.holders != holders)
    return " counts " + std::to_string(block.holders) + " holders and has " +
           std::to_string(holders);
  if (block.keyed) {
    const auto found = by_key_.find(block.key);
    if (found == by_key_.end() || found->second != index) return " is not found by its key";
  }
  const bool idle = block.idle_since > 0;
  if (idle != (block.keyed && holders == 0)) return " is kept wrongly";
  if (!idle) return {};
  const auto kept = idle_.find(block.idle_since);
  return kept == idle_.end() || kept->second != index ? " is not in its turn" : "";
}

}  // namespace troupe
