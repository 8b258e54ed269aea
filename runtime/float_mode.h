#pragma once

#include <xmmintrin.h>

#include <cstdint>

namespace troupe {

/// How a compute thread treats floating point: nearest even, denormals are zero in and out. AMX
/// does so whatever the mode says, so all do.
inline constexpr std::uint32_t kFloatModeBits = 0x8040;  // MXCSR: FTZ, DAZ

/// Sets the calling thread's mode; every compute thread begins with it.
inline void set_float_mode() {
  // All exceptions stay masked, as they are by default.
  _mm_setcsr((_mm_getcsr() & ~0x6000u) | kFloatModeBits);
}

inline bool float_mode_is_set() {
  return (_mm_getcsr() & (0x6000u | kFloatModeBits)) == kFloatModeBits;
}

/// The mode for as long as this lives, on a thread that has other things to do.
class FloatMode {
 public:
  FloatMode() : before_(_mm_getcsr()) { set_float_mode(); }
  ~FloatMode() { _mm_setcsr(before_); }
  FloatMode(const FloatMode&) = delete;
  FloatMode& operator=(const FloatMode&) = delete;

 private:
  std::uint32_t before_;
};

}  // namespace troupe
