#pragma once

#include <algorithm>
#include <chrono>

/// How programs here take times.
namespace troupe::timing {

inline double seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// The shortest of several timings of about `budget` seconds in all.
template <class Body>
double best_time(double budget, const Body& body) {
  body();
  double best = 1e9;
  for (const double end = seconds() + budget; seconds() < end;) {
    const double start = seconds();
    body();
    best = std::min(best, seconds() - start);
  }
  return best;
}

}  // namespace troupe::timing
