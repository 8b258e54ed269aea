#pragma once

#include <optional>
#include <vector>

#include "model/grammar/decimal.h"
#include "model/grammar/regex.h"

namespace troupe {

/// How numbers are written: integers without point and exponent. Digits are bounded, so that no
/// number goes on for ever: 20 before the point, more only if the bounds ask for it, and 20
/// behind; a bounded number has no exponent, another one of at most two digits.
struct NumberRange {
  std::optional<Decimal> min, max;
  bool min_exclusive = false, max_exclusive = false;

  /// The narrower of what is there and this.
  void at_least(const Decimal& bound, bool exclusive);
  void at_most(const Decimal& bound, bool exclusive);
  bool has(const Decimal& value) const;
  /// No number is in both.
  bool disjoint(const NumberRange& other) const;
};

/// The texts of the range's integers, nothing if there are none.
std::optional<Regex> integer_text(const NumberRange& range);
/// The texts of the range's numbers, integers among them. Near an exclusive bound, so few digits
/// that what a double makes of them lies within, too.
std::optional<Regex> number_text(const NumberRange& range);
/// Numbers that are no integers, whatever their size.
Regex fraction_text();

}  // namespace troupe
