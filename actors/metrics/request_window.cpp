#include "actors/metrics/request_window.h"

namespace troupe {
namespace {

std::int64_t slice_number(TimePoint now) { return now.time_since_epoch() / RequestWindow::kSlice; }

}  // namespace

RequestWindow::Slice& RequestWindow::at(TimePoint now) {
  const std::int64_t number = slice_number(now);
  Slice& slice = slices_[static_cast<std::size_t>(number) % kSlices];
  if (slice.number != number) {
    slice = {};
    slice.number = number;
  }
  return slice;
}

RequestRates RequestWindow::rates(TimePoint now) const {
  const std::int64_t newest = slice_number(now);
  std::uint64_t prompt = 0, generation = 0;
  LatencyBins first_token, inter_token;
  for (const Slice& slice : slices_) {
    if (slice.number <= newest - static_cast<std::int64_t>(kSlices)) continue;
    prompt += slice.prompt_tokens;
    generation += slice.generation_tokens;
    first_token += slice.first_token;
    inter_token += slice.inter_token;
  }
  // The newest slice is not over yet.
  const double span_s =
      std::chrono::duration<double>(now.time_since_epoch() % kSlice + (kSlices - 1) * kSlice)
          .count();
  return {static_cast<double>(prompt) / span_s, static_cast<double>(generation) / span_s,
          first_token.quantiles_ms(), inter_token.quantiles_ms()};
}

}  // namespace troupe
