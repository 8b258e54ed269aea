#include "model/grammar/utf8_edges.h"

#include <algorithm>
#include <array>

namespace troupe::grammar {
namespace {

/// The last code points of one, two, three and four bytes.
constexpr std::array<char32_t, 4> kLast = {0x7F, 0x7FF, 0xFFFF, 0x10FFFF};
constexpr std::array<std::uint8_t, 4> kLead = {0x00, 0xC0, 0xE0, 0xF0};

using Each = std::function<void(const ByteRanges&)>;

std::uint8_t byte_of(char32_t c, int length, int index) {
  const int shift = 6 * (length - 1 - index);
  if (index == 0) return static_cast<std::uint8_t>(kLead[length - 1] | c >> shift);
  return static_cast<std::uint8_t>(0x80 | ((c >> shift) & 0x3F));
}

/// Splits a range of characters of one length until each byte may be chosen apart from the others:
/// behind a byte that differs, the rest goes from all zeros to all ones.
void split(char32_t first, char32_t last, int length, const Each& each) {
  for (int free = 1; free < length; ++free) {
    const char32_t low_bits = (char32_t{1} << (6 * free)) - 1;
    if ((first & ~low_bits) == (last & ~low_bits)) continue;
    if ((first & low_bits) != 0) {
      split(first, first | low_bits, length, each);
      return split((first | low_bits) + 1, last, length, each);
    }
    if ((last & low_bits) != low_bits) {
      split(first, (last & ~low_bits) - 1, length, each);
      return split(last & ~low_bits, last, length, each);
    }
  }
  ByteRanges run;
  run.count = length;
  for (int i = 0; i < length; ++i)
    run.ranges[i] = {byte_of(first, length, i), byte_of(last, length, i)};
  each(run);
}

}  // namespace

void for_each_utf8(std::span<const CodePoints> ranges, const Each& each) {
  for (const CodePoints& range : ranges) {
    char32_t first = range.first;
    for (int length = 1; length <= 4 && first <= range.last; ++length) {
      if (first > kLast[length - 1]) continue;
      const char32_t last = std::min(range.last, kLast[length - 1]);
      split(first, last, length, each);
      first = last + 1;
    }
  }
}

}  // namespace troupe::grammar
