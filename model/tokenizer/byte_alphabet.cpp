#include "model/tokenizer/byte_alphabet.h"

#include <array>
#include <cstddef>

#include "model/tokenizer/utf8.h"

namespace troupe {
namespace {

constexpr bool stands_for_itself(unsigned b) {
  return (b >= 0x21 && b <= 0x7E) || (b >= 0xA1 && b <= 0xAC) || (b >= 0xAE && b <= 0xFF);
}

struct Alphabet {
  std::array<char32_t, 256> char_of{};
  std::array<short, 512> byte_of{};  // -1: no letter
};

constexpr Alphabet make_alphabet() {
  Alphabet alphabet;
  alphabet.byte_of.fill(-1);
  char32_t next = 256;
  for (unsigned b = 0; b < 256; ++b) {
    alphabet.char_of[b] = stands_for_itself(b) ? char32_t{b} : next++;
    alphabet.byte_of[alphabet.char_of[b]] = static_cast<short>(b);
  }
  return alphabet;
}

constexpr Alphabet kAlphabet = make_alphabet();

}  // namespace

char32_t byte_to_char(unsigned char byte) { return kAlphabet.char_of[byte]; }

std::optional<std::string> alphabet_to_bytes(std::string_view token) {
  std::string bytes;
  for (std::size_t i = 0; i < token.size();) {
    const char32_t c = utf8::decode(token, i);
    if (c >= kAlphabet.byte_of.size() || kAlphabet.byte_of[c] < 0) return std::nullopt;
    bytes += static_cast<char>(kAlphabet.byte_of[c]);
  }
  return bytes;
}

}  // namespace troupe
