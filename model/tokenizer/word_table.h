#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// A hash of few bytes in few steps.
inline std::uint64_t word_hash(std::string_view word) {
  constexpr std::uint64_t kOdd = 0x9E3779B97F4A7C15ull;
  const auto load = [](const char* from, auto value) {
    std::memcpy(&value, from, sizeof value);
    return std::uint64_t{value};
  };
  const auto byte = [&](std::size_t i) {
    return std::uint64_t{static_cast<unsigned char>(word[i])};
  };
  std::uint64_t hash = word.size() * kOdd;
  const auto mix = [&](std::uint64_t value) {
    hash = (hash ^ value) * kOdd;
    hash ^= hash >> 32;
  };
  const char* end = word.data() + word.size();
  if (word.size() >= 8) {
    for (const char* p = word.data(); end - p > 8; p += 8) mix(load(p, std::uint64_t{}));
    mix(load(end - 8, std::uint64_t{}));
  } else if (word.size() >= 4) {
    mix(load(word.data(), std::uint32_t{}) << 32 | load(end - 4, std::uint32_t{}));
  } else if (!word.empty()) {
    mix(byte(0) << 16 | byte(word.size() / 2) << 8 | byte(word.size() - 1));
  }
  return hash;
}

/// Tokens by their bytes.
class WordTable {
 public:
  /// Room for this many words; call once before add.
  void reserve(std::size_t count);
  /// The word must be new.
  void add(std::string_view word, TokenId id);
  /// The token, or -1. `hash` is word_hash(word).
  TokenId find(std::string_view word, std::uint64_t hash) const {
    for (std::size_t i = hash & mask_; slots_[i].id >= 0; i = (i + 1) & mask_) {
      const Slot& slot = slots_[i];
      if (slot.tag == tag_of(hash) && slot.length == word.size() &&
          std::memcmp(bytes_.data() + slot.offset, word.data(), word.size()) == 0) {
        return slot.id;
      }
    }
    return -1;
  }

 private:
  struct Slot {
    std::uint32_t tag = 0;
    std::uint32_t offset = 0;  // in bytes_
    std::uint32_t length = 0;
    TokenId id = -1;
  };
  static std::uint32_t tag_of(std::uint64_t hash) { return static_cast<std::uint32_t>(hash >> 32); }

  std::vector<Slot> slots_ = std::vector<Slot>(2);  // Open addressing, at most half full.
  std::size_t mask_ = 1;
  std::string bytes_;
};

/// The tokens of words seen lately: one entry a hash, the newest word takes it.
class WordCache {
 public:
  /// As large as profits a text of this many bytes.
  explicit WordCache(std::size_t text_bytes);

  /// Appends the tokens of the word; false if it is not here.
  bool find(std::string_view word, std::uint64_t hash, std::vector<TokenId>& out) const {
    const Entry& entry = entries_[hash & mask_];
    if (entry.length != word.size() ||
        std::memcmp(entry.word.data(), word.data(), word.size()) != 0) {
      return false;
    }
    out.insert(out.end(), entry.ids.begin(), entry.ids.begin() + entry.count);
    return true;
  }
  /// Keeps the word unless it is too long.
  void keep(std::string_view word, std::uint64_t hash, const TokenId* ids, std::size_t count);

 private:
  struct Entry {  // a cache line
    std::uint8_t length = 0;
    std::uint8_t count = 0;
    std::array<char, 30> word{};
    std::array<TokenId, 8> ids{};
  };

  std::vector<Entry> entries_;
  std::size_t mask_;
};

}  // namespace troupe
