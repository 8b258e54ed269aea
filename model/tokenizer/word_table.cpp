#include "model/tokenizer/word_table.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace troupe {
namespace {

/// The cache's entries; they fill a part of a core's own cache.
constexpr std::size_t kEntriesMin = 16;
constexpr std::size_t kEntriesMax = 2048;
constexpr std::size_t kTextBytesPerEntry = 8;

}  // namespace

void WordTable::reserve(std::size_t count) {
  slots_.assign(std::bit_ceil(std::max<std::size_t>(count, 1) * 2), Slot{});
  mask_ = slots_.size() - 1;
}

void WordTable::add(std::string_view word, TokenId id) {
  assert(id >= 0);
  const std::uint64_t hash = word_hash(word);
  std::size_t i = hash & mask_;
  while (slots_[i].id >= 0) i = (i + 1) & mask_;
  slots_[i] = {tag_of(hash), static_cast<std::uint32_t>(bytes_.size()),
               static_cast<std::uint32_t>(word.size()), id};
  bytes_ += word;
}

WordCache::WordCache(std::size_t text_bytes)
    : entries_(
          std::clamp(std::bit_ceil(text_bytes / kTextBytesPerEntry + 1), kEntriesMin, kEntriesMax)),
      mask_(entries_.size() - 1) {}

void WordCache::keep(std::string_view word, std::uint64_t hash, const TokenId* ids,
                     std::size_t count) {
  Entry& entry = entries_[hash & mask_];
  if (word.size() > entry.word.size() || count > entry.ids.size()) return;
  entry.length = static_cast<std::uint8_t>(word.size());
  entry.count = static_cast<std::uint8_t>(count);
  std::copy(word.begin(), word.end(), entry.word.begin());
  std::copy_n(ids, count, entry.ids.begin());
}

}  // namespace troupe
