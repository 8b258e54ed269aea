#include "model/tokenizer/scanner.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>

namespace troupe {
namespace {

constexpr std::size_t kSetsMax = 64;
constexpr std::size_t kTypesMax = 256;
constexpr std::size_t kPage = 256;
/// A match goes one call deep for each.
constexpr std::size_t kItemsMax = 64;

}  // namespace

/// Types are the atoms of the sets: the line of all code points is cut wherever a set begins or
/// ends, and pieces of equal membership share a type.
bool Scanner::assign_types(const ScanPattern& pattern) {
  std::map<char32_t, Mask> changes;  // at a code point: the sets that begin or end there
  changes[0] = 0;
  for (std::size_t i = 0; i < pattern.sets.size(); ++i) {
    for (const CodePointSet::Range& range : pattern.sets[i].ranges()) {
      changes[range.first] ^= Mask{1} << i;
      changes[range.last + 1] ^= Mask{1} << i;
    }
  }
  std::vector<std::uint8_t> all(CodePointSet::kLast + 1);
  std::map<Mask, std::size_t> known;
  Mask mask = 0;
  for (auto change = changes.begin(); change != changes.end(); ++change) {
    mask ^= change->second;
    const std::size_t type = known.emplace(mask, known.size()).first->second;
    if (type == kTypesMax) return false;
    if (type == masks_.size()) masks_.push_back(mask);
    const auto next = std::next(change);
    const std::size_t end = next == changes.end() ? all.size() : next->first;
    for (std::size_t c = change->first; c < end; ++c) all[c] = static_cast<std::uint8_t>(type);
  }
  for (std::size_t c = 0; c < ascii_.size(); ++c) ascii_[c] = masks_[all[c]];
  std::map<std::string_view, std::size_t> pages;
  for (std::size_t begin = 0; begin < all.size(); begin += kPage) {
    const std::string_view page(reinterpret_cast<const char*>(all.data()) + begin, kPage);
    const auto [place, is_new] = pages.emplace(page, pages.size());
    if (is_new) types_.insert(types_.end(), page.begin(), page.end());
    pages_.push_back(static_cast<std::uint16_t>(place->second));
  }
  return true;
}

/// Marks what never profits from giving back: where the next step needs a character that is not in
/// this step's set, all that it could give back is none either.
void Scanner::let_go_early(const ScanPattern& pattern, std::vector<ScanItem>& items) {
  for (std::size_t i = 0; i + 1 < items.size(); ++i) {
    const ScanItem& next = items[i + 1];
    if (items[i].kind != ScanItem::Kind::kSet || next.kind != ScanItem::Kind::kSet) continue;
    const CodePointSet both = pattern.sets[items[i].set].intersection(pattern.sets[next.set]);
    if (next.min > 0 && both.empty()) items[i].possessive = true;
  }
}

Scanner::Item Scanner::make_item(const ScanItem& from) {
  Item item{from.kind, from.possessive, Mask{1} << from.set, from.min, from.max, {}};
  for (const auto& sets : from.branches) {
    auto& branch = item.branches.emplace_back();
    for (const std::size_t set : sets) branch.push_back(Mask{1} << set);
  }
  return item;
}

std::optional<Scanner> Scanner::compile(const ScanPattern& pattern) {
  if (pattern.sets.size() > kSetsMax) return std::nullopt;
  Scanner scanner;
  for (std::vector<ScanItem> items : pattern.alternatives) {
    if (items.size() > kItemsMax) return std::nullopt;
    let_go_early(pattern, items);
    Alternative alternative;
    bool consumes = false;
    for (const ScanItem& from : items) {
      const Item item = make_item(from);
      const bool takes = item.kind == ScanItem::Kind::kSet || item.kind == ScanItem::Kind::kGroup;
      if (!consumes && !takes) return std::nullopt;
      if (!consumes && item.kind == ScanItem::Kind::kSet) alternative.first |= item.mask;
      if (!consumes) {
        for (const auto& branch : item.branches) alternative.first |= branch[0];
      }
      consumes = consumes || (takes && item.min > 0);
      alternative.items.push_back(item);
    }
    if (!consumes) return std::nullopt;
    scanner.first_ |= alternative.first;
    scanner.alternatives_.push_back(std::move(alternative));
  }
  if (!scanner.assign_types(pattern)) return std::nullopt;
  return scanner;
}

inline Scanner::Character Scanner::at(std::string_view text, std::size_t position) const {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::uint32_t>(static_cast<unsigned char>(text[position + i]));
  };
  const std::uint32_t lead = byte(0);
  if (lead < 0x80) return {ascii_[lead], 1};
  std::uint32_t c;
  std::size_t length;
  if (lead < 0xE0) {
    c = (lead & 0x1F) << 6 | (byte(1) & 0x3F);
    length = 2;
  } else if (lead < 0xF0) {
    c = (lead & 0xF) << 12 | (byte(1) & 0x3F) << 6 | (byte(2) & 0x3F);
    length = 3;
  } else {
    c = (lead & 7) << 18 | (byte(1) & 0x3F) << 12 | (byte(2) & 0x3F) << 6 | (byte(3) & 0x3F);
    length = 4;
  }
  return {masks_[types_[pages_[c / kPage] * kPage + c % kPage]], length};
}

/// One attempt to match an alternative.
class Scanner::Run {
 public:
  Run(const Scanner& scanner, std::string_view text, std::uint64_t& steps)
      : scanner_(scanner), text_(text), steps_(steps) {}

  /// Where an alternative's match ends that begins at `start`. One that failed behind a run of its
  /// first set fails all along that run: what it could end at there has been tried.
  std::optional<std::size_t> begin(std::size_t index, std::size_t start) {
    const std::vector<Item>& items = scanner_.alternatives_[index].items;
    if (index < failed_until_.size() && start < failed_until_[index]) return std::nullopt;
    first_ = items.data();
    const auto end = match(first_, first_ + items.size(), start);
    const bool runs = first_->kind == ScanItem::Kind::kSet && first_->max == ScanItem::kNoMax;
    if (!end && runs && index < failed_until_.size()) failed_until_[index] = first_end_;
    return end;
  }

  /// Where the match of the items from `item` on ends, if they match at `position`.
  std::optional<std::size_t> match(const Item* item, const Item* end, std::size_t position) {
    for (; item != end; ++item) {
      switch (item->kind) {
        case ScanItem::Kind::kSet: {
          std::uint32_t count = 0;
          const std::size_t longest = take(*item, position, count);
          if (item == first_) first_end_ = longest;
          steps_ -= std::min<std::uint64_t>(steps_, count);
          if (count < item->min) return std::nullopt;
          if (item->possessive || count == item->min || item + 1 == end) {
            position = longest;
            break;
          }
          return give_back(item, end, longest, count);
        }
        case ScanItem::Kind::kNotAhead:
          if (position < text_.size() && (scanner_.at(text_, position).mask & item->mask) != 0) {
            return std::nullopt;
          }
          break;
        case ScanItem::Kind::kLineEnd:
          if (position < text_.size() && text_[position] != '\n') return std::nullopt;
          break;
        case ScanItem::Kind::kGroup:
          return group(item, end, position);
      }
    }
    return position;
  }

  bool out_of_steps() const { return steps_ == 0; }

 private:
  std::size_t take(const Item& item, std::size_t position, std::uint32_t& count) const {
    while (count < item.max && position < text_.size()) {
      const Character character = scanner_.at(text_, position);
      if ((character.mask & item.mask) == 0) break;
      position += character.length;
      ++count;
    }
    return position;
  }

  std::optional<std::size_t> give_back(const Item* item, const Item* end, std::size_t position,
                                       std::uint32_t count) {
    for (;; --count) {
      const std::optional<std::size_t> rest = match(item + 1, end, position);
      if (rest || count == item->min || out_of_steps()) return rest;
      --steps_;
      do {
        --position;
      } while ((static_cast<unsigned char>(text_[position]) & 0xC0) == 0x80);
    }
  }

  std::optional<std::size_t> group(const Item* item, const Item* end, std::size_t position) {
    for (const std::vector<Mask>& branch : item->branches) {
      std::size_t cursor = position;
      bool fits = true;
      for (const Mask mask : branch) {
        const Character character =
            cursor < text_.size() ? scanner_.at(text_, cursor) : Character{};
        fits = (character.mask & mask) != 0;
        if (!fits) break;
        cursor += character.length;
      }
      if (!fits) continue;
      const std::optional<std::size_t> rest = match(item + 1, end, cursor);
      if (rest) return rest;
    }
    return item->min == 0 ? match(item + 1, end, position) : std::nullopt;
  }

  const Scanner& scanner_;
  std::string_view text_;
  std::uint64_t& steps_;
  const Item* first_ = nullptr;                 // of the alternative that is tried
  std::size_t first_end_ = 0;                   // of the longest run of it
  std::array<std::size_t, 16> failed_until_{};  // by alternative, of those that begin with a run
};

bool Scanner::find(std::string_view text, std::size_t start, std::uint64_t& steps,
                   std::optional<Match>& match) const {
  match.reset();
  Run run(*this, text, steps);
  while (start < text.size()) {
    const Character character = at(text, start);
    if ((character.mask & first_) == 0) {
      start += character.length;
      continue;
    }
    for (std::size_t i = 0; i < alternatives_.size(); ++i) {
      if ((character.mask & alternatives_[i].first) == 0) continue;
      const std::optional<std::size_t> end = run.begin(i, start);
      if (run.out_of_steps()) return false;
      if (!end) continue;
      match = Match{start, *end};
      return true;
    }
    start += character.length;
  }
  return true;
}

}  // namespace troupe
