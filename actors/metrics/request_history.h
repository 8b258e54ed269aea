#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <optional>
#include <vector>

#include "actors/metrics/request_window.h"
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
    std::uint64_t running = 0, waiting = 0;   ///< requests, the most at one time
    std::optional<Quantiles> first_token_ms;  ///< none: no first token came
  };

  explicit RequestHistory(TimePoint began) : first_(number_of(began)) {}

  void add_prompt_tokens(std::uint64_t count, TimePoint now) { at(now).prompt_tokens += count; }
  void add_generation_tokens(std::uint64_t count, TimePoint now) {
    at(now).generation_tokens += count;
  }
  void add_first_token(double seconds, TimePoint now);
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
  static constexpr std::size_t kFirstTokensMax = 4096;  ///< of a slot that count; later ones do not

  static std::int64_t number_of(TimePoint at) { return at.time_since_epoch() / kSlot; }
  Slot& at(TimePoint now);

  const std::int64_t first_;
  std::deque<Known> known_;          ///< in which something happened; the last may not be over
  std::vector<float> first_tokens_;  ///< of the last one, ms
};

}  // namespace troupe
