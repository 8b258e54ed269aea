#pragma once

#include <cstdio>
#include <string>

namespace troupe::bench {

/// std::printf's text, cut to 511 bytes.
template <class... Values>
std::string printed(const char* format, Values... values) {
  char text[512];
  std::snprintf(text, sizeof text, format, values...);
  return text;
}

}  // namespace troupe::bench
