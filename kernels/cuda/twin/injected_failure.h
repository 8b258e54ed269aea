#pragma once

#include <cstdint>

namespace troupe::kernels {

/// What a twin fails by, or does instead of what it should.
struct InjectedFailure {
  enum class What : std::uint8_t {
    kNone,
    kLaunch,  ///< a kernel touches what it must not; known when it is waited for
    kEcc,     ///< memory that cannot be corrected; known when something is waited for
    kLost,    ///< the device is gone
    kMemory,  ///< memory that cannot be had, twice: some wait for the queue, and try again
    kSlow,    ///< work takes many times as long, and the host none of it
    kHang,    ///< work that never ends
  };
  What what = What::kNone;
  std::uint64_t after = 0;  ///< so many kernels and copies, or of kMemory so many times it is taken
};

}  // namespace troupe::kernels
