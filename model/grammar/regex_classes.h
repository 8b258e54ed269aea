#pragma once

#include <optional>
#include <string_view>

#include "model/grammar/code_set.h"

namespace troupe {

/// What \d, \w, \s and `.` stand for: all dialects agree on `surely`, one of them on `maybe`.
struct RegexClass {
  CodeSet surely, maybe;

  RegexClass negated() const { return {maybe.complement(), surely.complement()}; }
  /// With the other case of each letter.
  RegexClass any_case() const;
  static RegexClass digit();
  static RegexClass word();
  static RegexClass space();
  static RegexClass dot();
  /// Characters of a general category of Unicode, as "L", "Lu" or "Letter"; nothing: no such one.
  static std::optional<RegexClass> category(std::string_view name);
};

}  // namespace troupe
