#pragma once

#include <algorithm>
#include <cstddef>

#include "kernels/context.h"

/// When an op is worth more than one thread.
namespace troupe::kernels {

/// Waking the pool costs some microseconds, so work below about ten of them stays on the caller.
inline constexpr double kParallelAboveNs = 12000;

inline int worthwhile_threads(const Context& ctx, double work_ns) {
  return ctx.pool == nullptr || work_ns < kParallelAboveNs ? 1 : ctx.pool->threads();
}

/// Calls body(thread, first, last) over pieces of [0, count), on the caller alone if the whole is
/// short. Pieces have no influence on any result: each index writes its own outputs.
template <class Body>
void parallel_ranges(const Context& ctx, std::size_t count, double work_ns, const Body& body) {
  const int threads = worthwhile_threads(ctx, work_ns);
  if (count == 0) return;
  if (threads == 1 || count == 1) {
    body(0, std::size_t{0}, count);
    return;
  }
  // A few pieces a thread even out threads that start late.
  const std::size_t pieces = std::min(count, static_cast<std::size_t>(threads) * 4);
  ctx.pool->parallel_for(pieces, [&](int thread, std::size_t i) {
    body(thread, count * i / pieces, count * (i + 1) / pieces);
  });
}

}  // namespace troupe::kernels
