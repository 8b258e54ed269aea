#pragma once

#include <chrono>

namespace troupe {

/// How long a test waits for what has to come. What is expected not to come is waited for in its
/// own time.
inline constexpr std::chrono::seconds kTestPatience(60);

}  // namespace troupe
