#include "tests/fuzz/mutate.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace troupe::fuzz {
namespace {

using Random = std::mt19937_64;

/// What parsers tend to stumble over.
constexpr auto kAwkward = std::to_array<std::string_view>(
    {"-1", "0", "9223372036854775807", "-9223372036854775808", "18446744073709551616", "1e999",
     "1e-999", "NaN", "null", "true", "[]", "{}", "\"\"", "\"", "\\", "\\u0000", "\\ud800",
     "[[[[[[", "\xff", "\xc0\x80", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\n", ",", ":"});

std::size_t below(std::size_t end, Random& random) { return end == 0 ? 0 : random() % end; }

void flip_bit(std::string& text, Random& random) {
  if (!text.empty()) text[below(text.size(), random)] ^= static_cast<char>(1 << (random() % 8));
}

void set_byte(std::string& text, Random& random) {
  constexpr auto kBytes = std::to_array<unsigned char>({0, 1, 0x7f, 0x80, 0xff});
  if (text.empty()) return;
  const bool from_table = random() % 2 == 0;
  text[below(text.size(), random)] =
      static_cast<char>(from_table ? kBytes[random() % kBytes.size()] : random());
}

void remove_piece(std::string& text, Random& random) {
  const std::size_t begin = below(text.size(), random);
  text.erase(begin, 1 + below(std::min<std::size_t>(text.size() - begin, 64), random));
}

void double_piece(std::string& text, Random& random) {
  const std::size_t begin = below(text.size(), random);
  const std::string piece = text.substr(begin, 1 + below(64, random));
  text.insert(below(text.size() + 1, random), piece);
}

void insert_awkward(std::string& text, Random& random) {
  text.insert(below(text.size() + 1, random), kAwkward[random() % kAwkward.size()]);
}

/// Replaces a run of digits, where there is one behind a random place.
void change_number(std::string& text, Random& random) {
  constexpr std::string_view kDigits = "0123456789";
  const std::size_t begin = text.find_first_of(kDigits, below(text.size(), random));
  if (begin == std::string::npos) return insert_awkward(text, random);
  const std::size_t end = std::min(text.find_first_not_of(kDigits, begin), text.size());
  text.replace(begin, end - begin,
               random() % 2 == 0 ? std::string(kAwkward[random() % 8])
                                 : std::to_string(random() >> (random() % 64)));
}

void splice(std::string& text, const std::string& other, Random& random) {
  const std::size_t begin = below(other.size(), random);
  const std::string piece = other.substr(begin, 1 + below(256, random));
  const std::size_t at = below(text.size() + 1, random);
  if (random() % 2 == 0)
    text.insert(at, piece);
  else
    text.replace(at, std::min(piece.size(), text.size() - at), piece);
}

}  // namespace

std::string mutate(const std::vector<std::string>& seeds, std::size_t bytes_max, Random& random) {
  std::string text = seeds[random() % seeds.size()];
  for (std::size_t rounds = 1 + random() % 8; rounds > 0; --rounds) {
    switch (random() % 8) {
      case 0: flip_bit(text, random); break;
      case 1: set_byte(text, random); break;
      case 2: remove_piece(text, random); break;
      case 3: double_piece(text, random); break;
      case 4: insert_awkward(text, random); break;
      case 5: change_number(text, random); break;
      case 6: splice(text, seeds[random() % seeds.size()], random); break;
      default: if (random() % 8 == 0) text.resize(below(text.size() + 1, random));
    }
  }
  if (text.size() > bytes_max) text.resize(bytes_max);
  return text;
}

}  // namespace troupe::fuzz
