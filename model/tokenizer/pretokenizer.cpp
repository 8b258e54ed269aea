#include "model/tokenizer/pretokenizer.h"

#include <algorithm>

namespace troupe {
namespace {

struct Section {
  TextRange range;
  bool match = false;
};

/// The whole text as matches and what is between them.
std::vector<Section> sections_of(const std::vector<TextRange>& matches, std::size_t size,
                                 bool invert) {
  std::vector<Section> sections;
  sections.reserve(matches.size() * 2 + 1);
  std::size_t previous = 0;
  for (const TextRange& match : matches) {
    if (previous != match.begin) sections.push_back({{previous, match.begin}, invert});
    sections.push_back({match, !invert});
    previous = match.end;
  }
  if (previous != size) sections.push_back({{previous, size}, invert});
  return sections;
}

/// kIsolated without the detour over sections.
void isolate(std::string_view text, const std::vector<TextRange>& matches,
             std::vector<std::string_view>& pieces) {
  std::size_t previous = 0;
  const auto add = [&](std::size_t end) {
    if (previous < end) pieces.push_back(text.substr(previous, end - previous));
    previous = end;
  };
  for (const TextRange& match : matches) {
    add(match.begin);
    add(match.end);
  }
  add(text.size());
}

std::vector<Section> merge_forward(const std::vector<Section>& sections, bool contiguous) {
  std::vector<Section> merged;
  bool previous_match = false;
  for (const Section& section : sections) {
    const bool join =
        contiguous ? section.match == previous_match : section.match && !previous_match;
    if (join && !merged.empty()) {
      merged.back().range.end = section.range.end;
    } else {
      merged.push_back(section);
    }
    previous_match = section.match;
  }
  return merged;
}

std::vector<Section> merge_with_next(const std::vector<Section>& sections) {
  std::vector<Section> merged;
  bool previous_match = false;
  for (auto section = sections.rbegin(); section != sections.rend(); ++section) {
    if (section->match && !previous_match && !merged.empty()) {
      merged.back().range.begin = section->range.begin;
    } else {
      merged.push_back(*section);
    }
    previous_match = section->match;
  }
  std::reverse(merged.begin(), merged.end());
  return merged;
}

std::vector<Section> apply(SplitBehavior behavior, std::vector<Section> sections) {
  switch (behavior) {
    case SplitBehavior::kIsolated:
      break;
    case SplitBehavior::kRemoved:
      std::erase_if(sections, [](const Section& section) { return section.match; });
      return sections;
    case SplitBehavior::kMergedWithPrevious:
      return merge_forward(sections, false);
    case SplitBehavior::kMergedWithNext:
      return merge_with_next(sections);
    case SplitBehavior::kContiguous:
      return merge_forward(sections, true);
  }
  return sections;
}

}  // namespace

bool PreTokenizer::drops_text() const {
  return std::any_of(stages_.begin(), stages_.end(), [](const auto& stage) {
    const auto* split = std::get_if<Split>(&stage);
    return split != nullptr && split->behavior == SplitBehavior::kRemoved;
  });
}

Status PreTokenizer::split(std::string_view text, Matcher& matcher,
                           std::vector<std::string_view>& pieces,
                           std::deque<std::string>& storage) const {
  pieces.assign(1, text);
  std::vector<std::string_view> next;
  std::vector<TextRange> matches;
  for (const auto& stage : stages_) {
    next.clear();
    const auto* split = std::get_if<Split>(&stage);
    for (const std::string_view piece : pieces) {
      if (split == nullptr) {
        next.push_back(piece.starts_with(' ') ? piece
                                              : storage.emplace_back(" " + std::string(piece)));
        continue;
      }
      matches.clear();
      const Status status = matcher.find_all(split->pattern, piece, matches);
      if (!status) return status;
      if (split->behavior == SplitBehavior::kIsolated) {
        isolate(piece, matches, next);
        continue;
      }
      for (const Section& section :
           apply(split->behavior, sections_of(matches, piece.size(), split->invert))) {
        const TextRange& range = section.range;
        if (range.begin == range.end) continue;
        next.push_back(piece.substr(range.begin, range.end - range.begin));
      }
    }
    pieces.swap(next);
  }
  return {};
}

}  // namespace troupe
