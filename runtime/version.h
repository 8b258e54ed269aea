#pragma once

namespace troupe {

/// As in CMakeLists.txt, which a test holds it to.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace troupe
