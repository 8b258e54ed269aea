#pragma once

#include <array>
#include <cstdint>
#include <limits>

#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// How many times as long a step with prompts may take as one without.
namespace stretch {
/// Nobody waits for it: limits::kStepTarget is the only bound.
inline constexpr double kAlone = std::numeric_limits<double>::infinity();
/// Others stream beside it.
inline constexpr double kShared = limits::kStepStretchShared;
/// Those who stream ask for more of the replica than whose prompt it is, or nobody streams but
/// owners take turns: so a prompt gets five sixths of the time, and a newcomer waits for six steps
/// at most.
inline constexpr double kAhead = 6;
/// It passes others' steps, and is to hold the whole of a short prompt.
inline constexpr double kExpress = 12;
/// The same beside streams that they do not go ahead of: as one of these alone.
inline constexpr double kExpressShort = 1;
}  // namespace stretch

/// How many rows of prompts a step gets, so that it takes about as long as is wanted, however fast
/// the devices are. It learns from the steps that come back:
///
///     time of a step = base + rows * row_time
///
/// The base is what a step with few rows takes. A chunk is never so small that the base is more
/// than half of its step, or a prompt would hardly get on.
class ChunkSize {
 public:
  explicit ChunkSize(std::int32_t rows_max);

  /// Rows of prompts for a step that has `decoding` rows of sequences that stream as well; at least
  /// one. The step may take so many times what one without prompts does, see stretch::.
  std::int32_t rows(std::int32_t decoding, double times) const;
  /// The same for a step of several prompts: so many that it computes nearly as many rows a second
  /// as the best steps did, since all of them wait for all. It takes limits::kStepTarget at most.
  std::int32_t efficient_rows(std::int32_t decoding) const;

  /// A step came back: `prompt_rows` of its `rows` were a prompt's.
  void on_step(std::int32_t rows, std::int32_t prompt_rows, Duration took);
  /// A step with prompts took too long, or too much memory.
  void on_failure();

 private:
  /// What steps of one sort took lately.
  struct Sample {
    double rows = 0, seconds = 0;
    void take(double newest_rows, double newest_seconds, double weight);
  };

  void note_rate(std::int32_t rows, std::int32_t prompt_rows, double took);
  /// What the step is to take, in seconds.
  double wanted(double times) const;

  std::int32_t rows_max_;
  std::int32_t tried_;  ///< prompt rows that a step has had; the next has at most twice as many
  Sample prompts_, decodes_;
  /// Rows a second of the newest steps with 2^k prompt rows and more, [k]; 0: there were none.
  std::array<double, 16> rates_{};
};

}  // namespace troupe
