#pragma once

#include "model/grammar/code_set.h"

namespace troupe {

/// What \d, \w, \s and `.` stand for: all dialects agree on `surely`, one of them on `maybe`.
struct RegexClass {
  CodeSet surely, maybe;

  RegexClass negated() const { return {maybe.complement(), surely.complement()}; }
  static RegexClass digit();
  static RegexClass word();
  static RegexClass space();
  static RegexClass dot();
};

}  // namespace troupe
