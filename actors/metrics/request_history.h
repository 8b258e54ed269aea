#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "actors/metrics/latency_bins.h"
#include "runtime/clock.h"

namespace troupe {

/// What requests did in the last hour, for graphs: slots of five seconds. Nothing is done while
/// nothing happens. Not thread-safe; times must not go back.
class RequestHistory {
 public:
  static constexpr Duration kSlot = std::chrono::seconds(5);
  static constexpr std::size_t kSlots = 720;

  struct Slot {
    std::uint64_t prompt_tokens = 0, generation_tokens = 0;
    std::uint64_t running = 0, waiting = 0;  ///< requests, the most at one time
    std::optional<Quantiles> first_token_ms, inter_token_ms;  ///< none: no such token came
  };

  /// Of the slot that goes on.
  static std::int64_t number_of(TimePoint at) { return at.time_since_epoch() / kSlot; }

  explicit RequestHistory(TimePoint began) : first_(number_of(began)) {}

  void add_prompt_tokens(std::uint64_t count, TimePoint now) { at(now).prompt_tokens += count; }
  void add_generation_tokens(std::uint64_t count, TimePoint now) {
    at(now).generation_tokens += count;
  }
  void add_first_token(double seconds, TimePoint now) {
    (void)at(now);
    first_token_.add(seconds);
  }
  void add_inter_token(double seconds, TimePoint now) {
    (void)at(now);
    inter_token_.add(seconds);
  }
  void set_running(std::uint64_t count, TimePoint now);
  void set_waiting(std::uint64_t count, TimePoint now);

  /// Slots that are over, the newest last: as many as there were since the beginning, at most
  /// kSlots.
  std::vector<Slot> slots(TimePoint now) const;

 private:
  struct Known {
    std::int64_t number = 0;
    Slot slot;
    std::uint64_t running = 0, waiting = 0;  ///< at its end
  };

  Slot& at(TimePoint now);
  void measure(Slot& slot) const;

  const std::int64_t first_;
  std::deque<Known> known_;  ///< in which something happened; the last may not be over
  LatencyBins first_token_, inter_token_;  ///< of the last one
};

}  // namespace troupe
