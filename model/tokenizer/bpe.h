#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// Byte-pair merges: of all neighbours that have a merge, the one of the lowest rank is joined
/// first, the leftmost of equals, until none is left. A heap of candidates over a linked list of
/// symbols, so a word of n bytes takes O(n log n) however long it is. Mirrors word.rs of Hugging
/// Face's tokenizers, down to its test for outdated candidates.
class Bpe {
 public:
  struct Merge {
    std::uint32_t rank = 0;
    TokenId merged = 0;
  };

  Bpe();

  /// The token of a single byte. Bytes without one are dropped from the text.
  void set_byte(unsigned char byte, TokenId id) { byte_ids_[byte] = id; }
  bool has_all_bytes() const;
  /// Room for this many merges; call once before add_merge.
  void reserve_merges(std::size_t count);
  /// A later merge of the same pair replaces an earlier one.
  void add_merge(TokenId left, TokenId right, Merge merge);
  /// `ignore_merges`: words that are tokens are looked up before any merging.
  void add_whole_word(std::string bytes, TokenId id) { words_[std::move(bytes)] = id; }

  /// Memory that lives for one text.
  class Scratch {
    friend class Bpe;
    struct Symbol {
      TokenId id;
      std::int32_t previous;
      std::int32_t next;
      bool removed;
    };
    struct Candidate {
      std::uint32_t rank;
      std::uint32_t position;
      TokenId merged;
      bool operator>(const Candidate& other) const {
        return rank != other.rank ? rank > other.rank : position > other.position;
      }
    };
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// Appends the tokens of a word of fewer than 2^31 bytes.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  const Merge* find(TokenId left, TokenId right) const;
  std::size_t slot_of(std::uint64_t pair) const;
  void push(Scratch& scratch, std::int32_t position) const;

  std::array<TokenId, 256> byte_ids_;
  std::vector<Slot> slots_;  // Open addressing, a power of two, at most half full.
  std::unordered_map<std::string, TokenId> words_;
};

}  // namespace troupe
