#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "actors/metrics/latency_bins.h"
#include "runtime/clock.h"

namespace troupe {

/// How requests fare right now, for the status.
struct RequestRates {
  double prompt_tokens_per_s = 0;
  double generation_tokens_per_s = 0;
  std::optional<Quantiles> first_token_ms;  ///< none: no token came in the window
  std::optional<Quantiles> inter_token_ms;
};

/// What requests did in the last ten seconds: slices of a second, the oldest of which drops out
/// as time goes on. Takes constant memory however many tokens come. Not thread-safe; times must not
/// go back.
class RequestWindow {
 public:
  static constexpr std::size_t kSlices = 10;
  static constexpr Duration kSlice = std::chrono::seconds(1);

  void add_prompt_tokens(std::uint64_t count, TimePoint now) { at(now).prompt_tokens += count; }
  void add_generation_tokens(std::uint64_t count, TimePoint now) {
    at(now).generation_tokens += count;
  }
  void add_first_token(double seconds, TimePoint now) { at(now).first_token.add(seconds); }
  void add_inter_token(double seconds, TimePoint now) { at(now).inter_token.add(seconds); }

  RequestRates rates(TimePoint now) const;

 private:
  struct Slice {
    std::int64_t number = -1;  ///< of the second that it holds
    std::uint64_t prompt_tokens = 0, generation_tokens = 0;
    LatencyBins first_token, inter_token;
  };
  Slice& at(TimePoint now);

  std::array<Slice, kSlices> slices_;
};

}  // namespace troupe
