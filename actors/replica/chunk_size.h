#pragma once

#include <cstdint>

#include "runtime/clock.h"

namespace troupe {

/// How many rows of prompts a step gets, so that it takes about as long as limits.h wants, however
/// fast the devices are: beside others that stream, a multiple of what their steps take alone. It
/// learns from the steps that come back:
///
///     time of a step = base + rows * row_time
///
/// The base is what a step with few rows takes. A chunk is never so small that the base is more
/// than half of its step, or a prompt would hardly get on.
class ChunkSize {
 public:
  explicit ChunkSize(std::int32_t rows_max);

  /// Rows of prompts for a step that has `decoding` rows of sequences that stream as well; at least
  /// one.
  std::int32_t rows(std::int32_t decoding) const;

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

  /// What the step is to take, in seconds.
  double wanted(std::int32_t decoding) const;

  std::int32_t rows_max_;
  std::int32_t tried_;  ///< prompt rows that a step has had; the next has at most twice as many
  Sample prompts_, decodes_;
};

}  // namespace troupe
