#include "model/chat/arguments_end.h"

#include <algorithm>

#include "model/chat/call_parser.h"

namespace troupe {

ArgumentsEnd::Found ArgumentsEnd::find(std::string_view text,
                                       std::span<const std::string_view> tags, bool last) {
  while (read_ < text.size()) {
    const std::string_view rest = text.substr(read_);
    const auto begins = [&](std::string_view tag) { return rest.starts_with(tag); };
    const auto may_begin = [&](std::string_view tag) { return tag.starts_with(rest); };
    const bool tag = rest.front() == '<' && std::ranges::any_of(tags, begins);
    if (!tag && rest.front() == '<' && !last && std::ranges::any_of(tags, may_begin)) break;
    if (const auto found = step(text, tag)) return *found;
  }
  return undecided(text, tags, last);
}

/// Reads one character, at which a tag begins or not.
std::optional<ArgumentsEnd::Found> ArgumentsEnd::step(std::string_view text, bool tag) {
  const bool in_text = syntax_.in_text();
  if (tag && in_text && !tag_) tag_ = read_;
  // A tag behind a text that is the whole value.
  if (tag && !in_text && (!tag_ || syntax_.done())) return Found{read_, true};
  const char c = text[read_++];
  syntax_.step(c);
  if (!tag_) return std::nullopt;
  if (syntax_.broken()) return Found{*tag_, true};
  if (in_text) {
    closed_ = !syntax_.in_text();
  } else if (closed_ && kJsonBlanks.find(c) == std::string_view::npos) {
    tag_.reset();  // JSON goes on.
    closed_ = false;
  }
  return std::nullopt;
}

/// What was read and is arguments. Where an answer ends in a text that has a tag, it was one if
/// nothing comes behind it, or another tag.
ArgumentsEnd::Found ArgumentsEnd::undecided(std::string_view text,
                                            std::span<const std::string_view> tags, bool last) {
  if (last && tag_) {
    std::string_view behind = text.substr(*tag_);
    const auto begins = [&](std::string_view tag) { return behind.starts_with(tag); };
    behind.remove_prefix(std::ranges::find_if(tags, begins)->size());
    behind.remove_prefix(std::min(behind.find_first_not_of(kJsonBlanks), behind.size()));
    if (behind.empty() || behind.front() == '<') return {*tag_, true};
    tag_.reset();
  }
  const std::size_t size = tag_.value_or(read_);
  read_ -= size;
  if (tag_) tag_ = 0;
  return {size, false};
}

}  // namespace troupe
