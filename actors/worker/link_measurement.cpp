#include "actors/worker/link_measurement.h"

#include <algorithm>
#include <cmath>
#include <utility>

namespace troupe {
namespace {

double seconds(Duration time) { return std::chrono::duration<double>(time).count(); }

/// By nearest rank; `sorted` is not empty.
float percentile(const std::vector<float>& sorted, double share) {
  const auto rank = static_cast<std::size_t>(std::ceil(share * double(sorted.size())));
  return sorted[std::clamp<std::size_t>(rank, 1, sorted.size()) - 1];
}

}  // namespace

LinkMeasurement::LinkMeasurement(std::vector<std::uint32_t> sizes) : sizes_(std::move(sizes)) {}

std::vector<LinkMeasurement::Probe> LinkMeasurement::next(TimePoint now) {
  std::vector<Probe> probes;
  while (!done()) {
    if (!begun_) {
      begun_ = true;
      begin_ = now;
    }
    if (phase_ == 0) {
      const bool enough = trips_us_.size() >= kRoundTripsMax ||
                          (trips_us_.size() >= kRoundTripsMin && now - begin_ >= kRoundTripsTime);
      if (!enough) {
        if (!under_way_.empty()) return probes;
        under_way_[next_sequence_] = {now, 0};
        probes.push_back({next_sequence_++, 0, 0});
        return probes;
      }
    } else {
      // The first one is sent in any case.
      while (under_way_.size() < window_ &&
             (sent_ == 0 || (now - phase_begin() < kPhaseTime &&
                             (sent_ + 1) * std::size_t{size()} <= kPhaseBytes))) {
        const Probe probe{next_sequence_++, there() ? size() : 0, there() ? 0 : size()};
        under_way_[probe.sequence] = {now, probe.reply_bytes};
        probes.push_back(probe);
        ++sent_;
      }
    }
    if (!under_way_.empty()) return probes;
    end_phase(now);
  }
  return probes;
}

bool LinkMeasurement::echoed(std::uint64_t sequence, std::size_t bytes, TimePoint now) {
  const auto it = under_way_.find(sequence);
  if (it == under_way_.end() || it->second.reply_bytes != bytes) return false;
  const Duration took = now - it->second.sent;
  under_way_.erase(it);
  if (phase_ == 0) {
    if (warmed_up_ < kWarmUp)
      ++warmed_up_;
    else
      trips_us_.push_back(static_cast<float>(seconds(took) * 1e6));
    return true;
  }
  if (echoes_++ == 0) first_ = now;
  last_ = now;
  const std::size_t most = std::max<std::size_t>(1, kUnderWay / size());
  if (took < kQuick) window_ = std::min(window_ + 1, most);
  return true;
}

/// From the first echo to the last: the way there and back of the first does not count. Where there
/// is but one, it does.
double LinkMeasurement::rate() const {
  if (echoes_ > 1 && last_ > first_) return double(echoes_ - 1) * size() / seconds(last_ - first_);
  return last_ > begin_ ? size() / seconds(last_ - begin_) : 0;
}

void LinkMeasurement::end_phase(TimePoint) {
  if (phase_ > 0) rates_.push_back(rate());
  ++phase_;
  begun_ = false;
  sent_ = echoes_ = 0;
  window_ = 1;
  skip_if_slow();
}

void LinkMeasurement::skip_if_slow() {
  while (phase_ > 2 && !done()) {
    const double before = rates_[phase_ - 3];  // of the size before, the same way
    if (before > 0 && size() / before < seconds(kTooLong)) return;
    rates_.push_back(0);
    ++phase_;
  }
}

LinkFigures LinkMeasurement::figures() const {
  LinkFigures figures;
  std::vector<float> sorted = trips_us_;
  std::sort(sorted.begin(), sorted.end());
  figures.round_trips = static_cast<std::uint32_t>(sorted.size());
  if (!sorted.empty()) {
    figures.p50_us = percentile(sorted, 0.5);
    figures.p99_us = percentile(sorted, 0.99);
  }
  for (std::size_t i = 0; i < sizes_.size() && 2 * i + 1 < rates_.size(); ++i)
    figures.rates.push_back({sizes_[i], rates_[2 * i], rates_[2 * i + 1]});
  return figures;
}

std::string LinkMeasurement::progress() const {
  std::string text = "after " + std::to_string(trips_us_.size()) + " round trips";
  if (phase_ > 0 && !done())
    text +=
        ", among tensors of " + std::to_string(size()) + " bytes " + (there() ? "there" : "back");
  return text;
}

}  // namespace troupe
