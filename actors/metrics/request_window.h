#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>

#include "runtime/clock.h"

namespace troupe {

/// Half of the values are at most p50, 99 of 100 at most p99.
struct Quantiles {
  double p50 = 0, p99 = 0;
};

/// How requests fare right now, for the status.
struct RequestRates {
  double prompt_tokens_per_s = 0;
  double generation_tokens_per_s = 0;
  std::optional<Quantiles> first_token_ms;  ///< none: no token came in the window
  std::optional<Quantiles> inter_token_ms;
};

/// What requests did in the last ten seconds: slices of a second, the oldest of which drops out
/// as time goes on. Takes constant memory however many tokens come; a quantile is exact to 5 %,
/// the width of a bin. Not thread-safe; times must not go back.
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
  /// Bins from 10 us to 1,000 s, each 5 % wider than the one before: ln(1e8) / ln(1.05) of them.
  static constexpr std::size_t kBins = 378;
  struct Histogram {
    std::array<std::uint32_t, kBins> bins{};
    void add(double seconds);
  };
  struct Slice {
    std::int64_t number = -1;  ///< of the second that it holds
    std::uint64_t prompt_tokens = 0, generation_tokens = 0;
    Histogram first_token, inter_token;
  };
  Slice& at(TimePoint now);
  template <class Member>
  std::optional<Quantiles> quantiles(std::int64_t newest, Member member) const;

  std::array<Slice, kSlices> slices_;
};

}  // namespace troupe
