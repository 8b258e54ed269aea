#include "model/tokenizer/added_tokens.h"

#include <algorithm>
#include <cassert>

#include "model/tokenizer/pattern_syntax.h"
#include "model/tokenizer/utf8.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

bool is_white_space(char32_t c) {
  return (c >= 9 && c <= 13) || c == 0x20 || c == 0x85 || c == 0xA0 || c == 0x1680 ||
         (c >= 0x2000 && c <= 0x200A) || c == 0x2028 || c == 0x2029 || c == 0x202F || c == 0x205F ||
         c == 0x3000;
}

std::size_t character_before(std::string_view text, std::size_t position) {
  do {
    --position;
  } while (position > 0 && (static_cast<unsigned char>(text[position]) & 0xC0) == 0x80);
  return position;
}

std::size_t strip_left(std::string_view text, std::size_t begin, std::size_t floor) {
  while (begin > floor) {
    const std::size_t before = character_before(text, begin);
    std::size_t cursor = before;
    if (before < floor || !is_white_space(utf8::decode(text, cursor))) break;
    begin = before;
  }
  return begin;
}

std::size_t strip_right(std::string_view text, std::size_t end) {
  while (end < text.size()) {
    std::size_t cursor = end;
    if (!is_white_space(utf8::decode(text, cursor))) break;
    end = cursor;
  }
  return end;
}

}  // namespace

AddedTokenFinder::AddedTokenFinder() : trie_(1), first_(256, -1) {}

Status AddedTokenFinder::add(const AddedToken& token) {
  assert(!token.content.empty());
  if (token.single_word && word_character_.empty()) {
    Result<Pattern> word = Pattern::compile_pcre2("[" + rust_word_class() + "]");
    if (!word) return word.error();
    word_character_.push_back(std::move(*word));
  }
  std::uint32_t node = 0;
  for (const char c : token.content) {
    const auto byte = static_cast<unsigned char>(c);
    auto& children = trie_[node].children;
    const auto place = std::lower_bound(children.begin(), children.end(),
                                        std::pair<unsigned char, std::uint32_t>(byte, 0));
    if (place != children.end() && place->first == byte) {
      node = place->second;
      continue;
    }
    if (trie_.size() == limits::kAddedTokenNodesMax) {
      return corrupt("the added tokens have more text than can be looked for");
    }
    const auto created = static_cast<std::uint32_t>(trie_.size());
    children.insert(place, {byte, created});
    if (node == 0) first_[byte] = static_cast<std::int32_t>(created);
    trie_.emplace_back();
    node = created;
  }
  trie_[node].token = static_cast<std::int32_t>(tokens_.size());
  tokens_.push_back(token);
  return {};
}

std::optional<std::size_t> AddedTokenFinder::longest() const {
  std::size_t bytes = 0;
  for (const AddedToken& token : tokens_) {
    if (token.lstrip || token.rstrip) return std::nullopt;
    bytes = std::max(bytes, token.content.size());
  }
  return bytes;
}

std::int32_t AddedTokenFinder::longest_at(std::string_view text, std::size_t position) const {
  std::int32_t next = first_[static_cast<unsigned char>(text[position])];
  std::int32_t best = -1;
  for (std::size_t i = position + 1; next >= 0; ++i) {
    const Node& node = trie_[static_cast<std::size_t>(next)];
    if (node.token >= 0) best = node.token;
    if (i == text.size()) break;
    const auto byte = static_cast<unsigned char>(text[i]);
    const auto child = std::lower_bound(node.children.begin(), node.children.end(),
                                        std::pair<unsigned char, std::uint32_t>(byte, 0));
    const bool found = child != node.children.end() && child->first == byte;
    next = found ? static_cast<std::int32_t>(child->second) : -1;
  }
  return best;
}

Result<bool> AddedTokenFinder::touches_word(std::string_view text, TextRange range,
                                            Matcher& matcher) const {
  std::vector<TextRange> found;
  if (range.begin > 0) {
    const std::size_t before = character_before(text, range.begin);
    const Status status =
        matcher.find_all(word_character_[0], text.substr(before, range.begin - before), found);
    if (!status) return status.error();
  }
  if (range.end < text.size()) {
    std::size_t after = range.end;
    (void)utf8::decode(text, after);
    const Status status =
        matcher.find_all(word_character_[0], text.substr(range.end, after - range.end), found);
    if (!status) return status.error();
  }
  return !found.empty();
}

Status AddedTokenFinder::split(std::string_view text, Matcher& matcher,
                               std::vector<Piece>& pieces) const {
  std::size_t done = 0;  // What is before it has been given out.
  for (std::size_t i = 0; i < text.size() && !tokens_.empty();) {
    if (first_[static_cast<unsigned char>(text[i])] < 0) {
      ++i;
      continue;
    }
    const std::int32_t index = longest_at(text, i);
    if (index < 0) {
      ++i;
      continue;
    }
    const AddedToken& token = tokens_[static_cast<std::size_t>(index)];
    TextRange range{i, i + token.content.size()};
    i = range.end;  // Even if the match is refused, the search goes on behind it.
    if (token.single_word) {
      const Result<bool> touches = touches_word(text, range, matcher);
      if (!touches) return touches.error();
      if (*touches) continue;
    }
    if (token.lstrip) range.begin = strip_left(text, range.begin, std::min(done, range.begin));
    if (token.rstrip) range.end = strip_right(text, range.end);
    if (done < range.begin) pieces.push_back({-1, {done, range.begin}});
    pieces.push_back({token.id, range});
    done = range.end;
  }
  if (done < text.size()) pieces.push_back({-1, {done, text.size()}});
  return {};
}

}  // namespace troupe
