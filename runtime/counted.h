#pragma once

#include <cstddef>
#include <string>

namespace troupe {

/// "1 node", "2 nodes".
inline std::string counted(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

/// Copies of experts or of layers: "1 copy", "2 copies".
inline std::string counted_copies(std::size_t n) {
  return n == 1 ? "1 copy" : std::to_string(n) + " copies";
}

}  // namespace troupe
