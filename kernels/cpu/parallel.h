#pragma once

#include <algorithm>
#include <cassert>
#include <cstddef>

#include "kernels/stream.h"
#include "runtime/float_mode.h"

/// When an op is worth more than one thread.
namespace troupe::kernels {

/// Waking the pool costs some microseconds, so work below about ten of them stays on the caller.
inline constexpr double kParallelAboveNs = 12000;
/// Longer work is cut, even for one thread, so that a device that computes is seen to go on.
inline constexpr double kPieceNs = 20e6;

inline int worthwhile_threads(const Stream& stream, double work_ns) {
  return stream.pool() == nullptr || work_ns < kParallelAboveNs ? 1 : stream.pool()->threads();
}

/// How many pieces work is worth, for one thread too. A few a thread even out threads that start
/// late.
inline std::size_t worthwhile_pieces(int threads, double work_ns) {
  const std::size_t even = threads == 1 ? 1 : static_cast<std::size_t>(threads) * 4;
  return std::max(even, static_cast<std::size_t>(work_ns / kPieceNs));
}

/// Calls body(thread, first, last) over pieces of [0, count), on the caller alone if the whole is
/// short. Pieces have no influence on any result: each index writes its own outputs.
template <class Body>
void parallel_ranges(const Stream& stream, std::size_t count, double work_ns, const Body& body) {
  const int threads = worthwhile_threads(stream, work_ns);
  if (count == 0) return;
  assert(float_mode_is_set());
  if (count == 1 || stream.pool() == nullptr || work_ns < kParallelAboveNs) {
    body(0, std::size_t{0}, count);
    return;
  }
  const std::size_t pieces = std::min(count, worthwhile_pieces(threads, work_ns));
  stream.pool()->parallel_for(pieces, [&](int thread, std::size_t i) {
    body(thread, count * i / pieces, count * (i + 1) / pieces);
  });
}

}  // namespace troupe::kernels
