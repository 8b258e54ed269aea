#pragma once

#include <functional>
#include <span>

#include "model/grammar/parse_grammar.h"

namespace troupe::grammar {

/// A run of at most four byte ranges: the encodings of a block of code points.
struct ByteRanges {
  struct Range {
    std::uint8_t lo = 0;
    std::uint8_t hi = 0;
  };
  Range ranges[4];
  int count = 0;
};

/// Calls `each` with the runs that together are the UTF-8 of one character of the class.
void for_each_utf8(std::span<const CodePoints> ranges,
                   const std::function<void(const ByteRanges&)>& each);

}  // namespace troupe::grammar
