#pragma once

#include <chrono>
#include <ctime>

namespace troupe::cli {

/// Of this machine's time zone, now.
inline int utc_offset_s() {
  const std::time_t now_s = std::time(nullptr);
  std::tm local{};
  return localtime_r(&now_s, &local) != nullptr ? static_cast<int>(local.tm_gmtoff) : 0;
}

inline double unix_now_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace troupe::cli
