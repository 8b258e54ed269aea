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

/// Work cut for some threads: long pieces first and short ones last, so that threads that start
/// late or run slowly end with the others.
class Pieces {
 public:
  Pieces(int threads, double work_ns)
      : threads_(static_cast<std::size_t>(threads)),
        even_(static_cast<std::size_t>(work_ns / kPieceNs)) {}

  std::size_t count() const {
    const std::size_t falling = threads_ == 1 ? 1 : threads_ * kRounds;
    return even() ? even_ : falling;
  }
  /// The part of the work that lies before the i-th.
  double before(std::size_t i) const {
    if (even() || threads_ == 1) return static_cast<double>(i) / static_cast<double>(count());
    // Each round has half of what was left, the last one all.
    const std::size_t round = i / threads_;
    if (round == kRounds) return 1;
    const double left = 1 / static_cast<double>(std::size_t{1} << round);
    const double share = round + 1 == kRounds ? left : left / 2;
    return 1 - left + share * static_cast<double>(i % threads_) / static_cast<double>(threads_);
  }

 private:
  static constexpr std::size_t kRounds = 5;  ///< pieces of a thread
  /// Long work: pieces as long as may be. The longest of the falling ones is half a thread's share.
  bool even() const { return even_ > 2 * threads_; }

  std::size_t threads_, even_;
};

/// Calls body(thread, i) for every piece. Pieces have no influence on any result: each writes
/// outputs of its own.
template <class Body>
void parallel_pieces(const Stream& stream, const Pieces& pieces, const Body& body) {
  assert(float_mode_is_set());
  if (stream.pool() != nullptr && pieces.count() > 1) {
    stream.pool()->parallel_for(pieces.count(), body);
    return;
  }
  for (std::size_t i = 0; i < pieces.count(); ++i) body(0, i);
}

/// Calls body(thread, first, last) over pieces of [0, count).
template <class Body>
void parallel_ranges(const Stream& stream, std::size_t count, double work_ns, const Body& body) {
  const int threads = worthwhile_threads(stream, work_ns);
  if (threads > 1 && count <= static_cast<std::size_t>(threads)) {
    stream.pool()->parallel_for(count, [&](int thread, std::size_t i) { body(thread, i, i + 1); });
    return;
  }
  const Pieces pieces(threads, work_ns);
  const auto cut = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<double>(count) * pieces.before(i));
  };
  parallel_pieces(stream, pieces, [&](int thread, std::size_t i) {
    const std::size_t first = cut(i), last = cut(i + 1);
    if (first < last) body(thread, first, last);
  });
}

}  // namespace troupe::kernels
