#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "model/tokenizer/word_table.h"
#include "runtime/ids.h"

namespace troupe {

/// Byte-pair merges: of all neighbours that have a merge, the one of the lowest rank is joined
/// first, the leftmost of equals, until none is left. Mirrors word.rs of Hugging Face's tokenizers.
///
///     whole word a token? ─► met lately? ─► short: scan for the lowest rank
///                                           long:  a heap of candidates over a linked list
///
/// A word of n bytes takes O(n log n), however long it is.
class Bpe {
 public:
  static constexpr std::uint32_t kRanks = 1u << 25;
  struct Merge {
    std::uint32_t rank = 0;  ///< less than kRanks
    TokenId merged = 0;
  };

  Bpe();

  /// The token of a single byte.
  void set_byte(unsigned char byte, TokenId id) { byte_ids_[byte] = id; }
  bool has_byte(unsigned char byte) const { return byte_ids_[byte] >= 0; }
  bool has_all_bytes() const;
  /// Room for this many merges; call once before add_merge.
  void reserve_merges(std::size_t count);
  /// A later merge of the same pair replaces an earlier one.
  void add_merge(TokenId left, TokenId right, Merge merge);
  /// Call once after the merges, with all tokens: words that are a token need no merging. Without
  /// `ignore_merges` these are the tokens that merging would give; with it, all of them.
  void set_whole_words(const std::vector<std::pair<std::string_view, TokenId>>& tokens,
                       bool ignore_merges);

  /// Memory that lives for one text.
  class Scratch {
   public:
    explicit Scratch(std::size_t text_bytes) : cache(text_bytes) {}

   private:
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
    WordCache cache;
    std::vector<Symbol> symbols;
    std::vector<Candidate> heap;
  };

  /// Appends the tokens of a word of fewer than 2^31 bytes, all of which have a token.
  void encode(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

 private:
  struct Slot {
    std::uint64_t pair = kEmpty;
    Merge merge;
  };
  static constexpr std::uint64_t kEmpty = ~std::uint64_t{0};

  static std::uint64_t hash(std::uint64_t pair);
  const Merge* find(TokenId left, TokenId right) const;
  std::size_t slot_of(std::uint64_t pair) const;
  void push(Scratch& scratch, std::int32_t position) const;
  void merge(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;
  void merge_short(std::string_view word, std::vector<TokenId>& out) const;
  void merge_long(std::string_view word, Scratch& scratch, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_ids_;
  std::vector<Slot> slots_;  // Open addressing, a power of two, at most half full.
  /// A bit set for every pair that has a merge: most have none, and these bits fit a core's cache.
  std::vector<std::uint64_t> filter_;
  WordTable words_;
};

}  // namespace troupe
