#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/byte_alphabet.h"
#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/gguf_vocabulary.h"
#include "model/tokenizer/pattern.h"
#include "model/tokenizer/pattern_syntax.h"
#include "model/tokenizer/utf8.h"

namespace {

/// A tokenizer that loaded must work: no crash, and text that is UTF-8.
void use(const std::shared_ptr<const troupe::Tokenizer>& tokenizer) {
  constexpr std::string_view kText = "Hello, w\xc3\xb6rld 123  <s>\n\n\xe6\x98\xaf\xff ''s  ";
  const auto ids = tokenizer->encode(kText, true);
  if (!ids.ok()) return;
  troupe::StreamDecoder decoder(tokenizer, {});
  std::string streamed;
  for (const troupe::TokenId id : *ids) streamed += decoder.feed(id);
  streamed += decoder.finish();
  if (!troupe::utf8::valid(streamed) || streamed != tokenizer->decode(*ids, true)) std::abort();
}

/// The sections of the input: zero bytes divide them. Those that are missing are empty.
std::array<std::string_view, 3> sections_of(std::string_view bytes) {
  std::array<std::string_view, 3> sections;
  for (std::string_view& section : sections) {
    const std::size_t end = std::min(bytes.find('\0'), bytes.size());
    section = bytes.substr(0, end);
    bytes.remove_prefix(std::min(end + 1, bytes.size()));
  }
  return sections;
}

std::vector<std::string> lines_of(std::string_view text) {
  std::vector<std::string> lines;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    lines.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return lines;
}

/// A pattern that is scanned matches what PCRE2 matches.
void compare_scanner(std::string_view expression, std::string_view text) {
  if (!troupe::utf8::valid(expression) || !troupe::utf8::valid(text)) return;
  const auto scanned = troupe::Pattern::compile(expression);
  const auto syntax = troupe::to_pcre2_syntax(expression);
  if (!scanned.ok() || !syntax.ok()) return;
  const auto general = troupe::Pattern::compile_pcre2(*syntax);
  if (!general.ok()) return;
  troupe::Matcher matcher;
  std::vector<troupe::TextRange> ours;
  std::vector<troupe::TextRange> theirs;
  if (!matcher.find_all(*scanned, text, ours).ok()) return;
  if (!matcher.find_all(*general, text, theirs).ok()) return;
  if (!std::equal(
          ours.begin(), ours.end(), theirs.begin(), theirs.end(),
          [](const auto& a, const auto& b) { return a.begin == b.begin && a.end == b.end; })) {
    std::abort();
  }
}

/// The 256 bytes and what the input adds.
troupe::GgufVocabulary gguf_of(const std::array<std::string_view, 3>& sections) {
  troupe::GgufVocabulary vocabulary;
  vocabulary.pre = std::string(sections[0]);
  for (unsigned b = 0; b < 256; ++b) {
    std::string letter;
    troupe::utf8::append(letter, troupe::byte_to_char(static_cast<unsigned char>(b)));
    vocabulary.tokens.push_back(letter);
  }
  for (std::string& token : lines_of(sections[1])) vocabulary.tokens.push_back(std::move(token));
  vocabulary.merges = lines_of(sections[2]);
  return vocabulary;
}

}  // namespace

/// The bytes are read as each of the formats: tokenizer.json or tiktoken.model, then a zero byte
/// and tokenizer_config.json; the name, the tokens and the merges of a GGUF file; a pattern and a
/// text.
extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const std::string_view bytes(reinterpret_cast<const char*>(data), size);
  const auto sections = sections_of(bytes);
  for (const auto& tokenizer : {troupe::Tokenizer::from_json(sections[0], sections[1]),
                                troupe::Tokenizer::from_tiktoken(sections[0], sections[1]),
                                troupe::Tokenizer::from_gguf(gguf_of(sections))}) {
    if (tokenizer.ok()) use(*tokenizer);
  }
  compare_scanner(sections[0], sections[1]);
  return 0;
}
