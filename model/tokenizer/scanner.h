#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/tokenizer/scan_syntax.h"

namespace troupe {

/// Runs a ScanPattern over text, some ten times as fast as a general engine: every character has a
/// type, two characters of one type are in the same sets, and a set is a bit. Immutable.
///
/// Matches are those of a backtracking engine: the leftmost, by the first alternative that fits.
class Scanner {
 public:
  struct Match {
    std::size_t begin = 0;
    std::size_t end = 0;
  };

  /// Nothing if the pattern has too many sets or alternatives, or can match the empty text.
  static std::optional<Scanner> compile(const ScanPattern& pattern);

  /// The first match at `start` or later in `text`, which is UTF-8. Every character that a step
  /// takes or gives back costs one of `steps`; false when they run out.
  bool find(std::string_view text, std::size_t start, std::uint64_t& steps,
            std::optional<Match>& match) const;

 private:
  using Mask = std::uint64_t;

  struct Item {
    ScanItem::Kind kind = ScanItem::Kind::kSet;
    bool possessive = false;
    Mask mask = 0;
    std::uint32_t min = 1;
    std::uint32_t max = 1;
    std::vector<std::vector<Mask>> branches;
  };
  struct Alternative {
    std::vector<Item> items;
    Mask first = 0;  // of the characters that it can begin with
  };
  struct Character {
    Mask mask = 0;
    std::size_t length = 0;
  };
  class Run;

  bool assign_types(const ScanPattern& pattern);
  static Item make_item(const ScanItem& from);
  static void let_go_early(const ScanPattern& pattern, std::vector<ScanItem>& items);
  Character at(std::string_view text, std::size_t position) const;

  std::vector<Alternative> alternatives_;
  Mask first_ = 0;
  std::array<Mask, 128> ascii_{};
  std::vector<Mask> masks_;          // by type
  std::vector<std::uint8_t> types_;  // pages of 256 characters; no page occurs twice
  std::vector<std::uint16_t> pages_;
};

}  // namespace troupe
