#pragma once

#include <cstddef>
#include <string>

namespace troupe {

/// "1 node", "2 nodes".
inline std::string counted(std::size_t n, const std::string& what) {
  return std::to_string(n) + " " + what + (n == 1 ? "" : "s");
}

}  // namespace troupe
