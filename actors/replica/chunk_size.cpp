#include "actors/replica/chunk_size.h"

#include <algorithm>
#include <bit>
#include <cstddef>

namespace troupe {
namespace {

/// Of the newest step among those before it: chunks change by a factor of two, decodes little.
constexpr double kPromptWeight = 0.5, kDecodeWeight = 0.125;
/// Rows a second that are near the best; and what of the best counts with each step, since rows
/// behind a long context take longer.
constexpr double kNearBest = 0.85, kRateKept = 0.99;

double seconds(Duration duration) { return std::chrono::duration<double>(duration).count(); }

}  // namespace

void ChunkSize::Sample::take(double newest_rows, double newest_seconds, double weight) {
  if (rows == 0) weight = 1;
  rows += weight * (newest_rows - rows);
  seconds += weight * (newest_seconds - seconds);
}

ChunkSize::ChunkSize(std::int32_t rows_max)
    : rows_max_(rows_max), tried_(std::min(rows_max, limits::kChunkRowsFirst)) {}

std::int32_t ChunkSize::rows(std::int32_t decoding, double times) const {
  const std::int32_t least = std::min(rows_max_, limits::kChunkRowsLeast);
  const auto most = static_cast<std::int32_t>(
      std::min<std::int64_t>(rows_max_, std::max<std::int64_t>(least, 2 * std::int64_t{tried_})));
  if (prompts_.rows == 0) return std::clamp(tried_, least, most);
  double row_time = prompts_.seconds / prompts_.rows, base = 0;
  if (decodes_.rows > 0 && prompts_.rows > decodes_.rows) {
    row_time = std::max(0.0, prompts_.seconds - decodes_.seconds) / (prompts_.rows - decodes_.rows);
    base = std::max(0.0, decodes_.seconds - row_time * decodes_.rows);
  }
  const double left = std::max(wanted(times), 2 * base) - base - row_time * decoding;
  if (row_time <= 0) return most;
  return static_cast<std::int32_t>(
      std::clamp(left / row_time, static_cast<double>(least), static_cast<double>(most)));
}

std::int32_t ChunkSize::efficient_rows(std::int32_t decoding) const {
  const std::int32_t most = rows(decoding, stretch::kAlone);
  const double near = kNearBest * *std::ranges::max_element(rates_);
  for (std::size_t k = 0; k < rates_.size(); ++k) {
    if (rates_[k] == 0 || rates_[k] < near) continue;
    // Of the largest that were tried it is not known whether larger ones are better.
    const bool largest = std::all_of(rates_.begin() + static_cast<std::ptrdiff_t>(k) + 1,
                                     rates_.end(), [](double rate) { return rate == 0; });
    return std::min(most, std::int32_t{1} << (largest ? k + 1 : k));
  }
  return most;
}

double ChunkSize::wanted(double times) const {
  if (times == stretch::kAlone) return seconds(limits::kStepTarget);
  if (decodes_.rows == 0) return seconds(limits::kStepTargetShared);
  return std::min(seconds(limits::kStepTarget), times * decodes_.seconds);
}

void ChunkSize::on_step(std::int32_t rows, std::int32_t prompt_rows, Duration took) {
  if (prompt_rows == 0) return decodes_.take(rows, seconds(took), kDecodeWeight);
  tried_ = std::max(tried_, prompt_rows);
  note_rate(rows, prompt_rows, seconds(took));
  // Of a short prompt the base is most of the time.
  if (prompt_rows < limits::kChunkRowsLeast && prompt_rows < rows_max_) return;
  prompts_.take(rows, seconds(took), kPromptWeight);
}

void ChunkSize::note_rate(std::int32_t rows, std::int32_t prompt_rows, double took) {
  if (took <= 0) return;
  for (double& rate : rates_) rate *= kRateKept;
  const auto k = static_cast<std::size_t>(std::bit_width(static_cast<std::uint32_t>(prompt_rows)));
  double& rate = rates_[std::min(k, rates_.size()) - 1];
  rate += (rate == 0 ? 1 : kPromptWeight) * (rows / took - rate);
}

void ChunkSize::on_failure() {
  tried_ = std::max(tried_ / 4, 1);
  prompts_ = {};
  rates_ = {};
}

}  // namespace troupe
