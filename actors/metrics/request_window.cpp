#include "actors/metrics/request_window.h"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

constexpr double kSmallestMs = 0.01, kGrowth = 1.05;

std::int64_t slice_number(TimePoint now) { return now.time_since_epoch() / RequestWindow::kSlice; }

/// In the middle of a bin, so that the error is half of its width.
double bin_ms(std::size_t bin) {
  return kSmallestMs * std::pow(kGrowth, static_cast<double>(bin) + 0.5);
}

}  // namespace

void RequestWindow::Histogram::add(double seconds) {
  const double steps =
      std::log(std::max(seconds * 1e3, kSmallestMs) / kSmallestMs) / std::log(kGrowth);
  ++bins[std::min(static_cast<std::size_t>(steps), kBins - 1)];
}

RequestWindow::Slice& RequestWindow::at(TimePoint now) {
  const std::int64_t number = slice_number(now);
  Slice& slice = slices_[static_cast<std::size_t>(number) % kSlices];
  if (slice.number != number) {
    slice = {};
    slice.number = number;
  }
  return slice;
}

template <class Member>
std::optional<Quantiles> RequestWindow::quantiles(std::int64_t newest, Member member) const {
  std::array<std::uint64_t, kBins> sums{};
  std::uint64_t total = 0;
  for (const Slice& slice : slices_) {
    if (slice.number <= newest - static_cast<std::int64_t>(kSlices)) continue;
    const Histogram& histogram = slice.*member;
    for (std::size_t bin = 0; bin < kBins; ++bin) sums[bin] += histogram.bins[bin];
  }
  for (const std::uint64_t sum : sums) total += sum;
  if (total == 0) return std::nullopt;
  const auto quantile = [&](double share) {
    const auto wanted = static_cast<std::uint64_t>(std::ceil(share * static_cast<double>(total)));
    std::uint64_t seen = 0;
    for (std::size_t bin = 0; bin < kBins; ++bin)
      if ((seen += sums[bin]) >= wanted) return bin_ms(bin);
    return bin_ms(kBins - 1);
  };
  return Quantiles{quantile(0.5), quantile(0.99)};
}

RequestRates RequestWindow::rates(TimePoint now) const {
  const std::int64_t newest = slice_number(now);
  std::uint64_t prompt = 0, generation = 0;
  for (const Slice& slice : slices_) {
    if (slice.number <= newest - static_cast<std::int64_t>(kSlices)) continue;
    prompt += slice.prompt_tokens;
    generation += slice.generation_tokens;
  }
  // The newest slice is not over yet.
  const double span_s =
      std::chrono::duration<double>(now.time_since_epoch() % kSlice + (kSlices - 1) * kSlice)
          .count();
  return {static_cast<double>(prompt) / span_s, static_cast<double>(generation) / span_s,
          quantiles(newest, &Slice::first_token), quantiles(newest, &Slice::inter_token)};
}

}  // namespace troupe
