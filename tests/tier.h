#pragma once

#include <cstdlib>

/// Which of the tests run: `tools/test --long` asks for all sizes and layouts (TROUPE_LONG in the
/// environment), everybody else for those that show each promise once.
namespace troupe {

inline bool long_tier() {
  static const bool asked = std::getenv("TROUPE_LONG") != nullptr;
  return asked;
}

}  // namespace troupe
