#include "model/chat/text_without.h"

#include <cstddef>
#include <map>

#include "model/grammar/grammar_writer.h"

namespace troupe {
namespace {

/// How many bytes the character has that begins with this one.
std::size_t character_size(char first) {
  const auto byte = static_cast<unsigned char>(first);
  return byte < 0x80 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : 4;
}

std::string either(const std::string& one, const std::string& other) {
  return one.empty() ? other : one + " | " + other;
}

}  // namespace

/// What begins like a tag is followed by a character that no tag goes on with, by the beginning of
/// another one, or by nothing.
std::string text_without(std::span<const std::string_view> tags) {
  std::map<std::string, std::string, std::less<>> goes_on;  // Each beginning, with what comes next.
  for (const std::string_view tag : tags) {
    for (std::size_t at = 1; at < tag.size(); at += character_size(tag[at])) {
      std::string& next = goes_on[std::string(tag.substr(0, at))];
      const std::string_view character = tag.substr(at, character_size(tag[at]));
      if (next.find(character) == std::string::npos) next += character;
    }
  }
  std::string begun, broken;
  for (const auto& [beginning, next] : goes_on) {
    begun = either(begun, GrammarWriter::literal(beginning));
    broken = either(broken, GrammarWriter::literal(beginning) + " [^<" + next + "]");
  }
  return "([^<] | (" + begun + ")* (" + broken + "))* (" + begun + ")*";
}

}  // namespace troupe
