#include "actors/metrics/device_loads.h"

#include <algorithm>
#include <cmath>

namespace troupe {
namespace {

constexpr auto kSlots = static_cast<std::int64_t>(RequestHistory::kSlots);

std::size_t place_of(std::int64_t slot) { return static_cast<std::size_t>(slot % kSlots); }

}  // namespace

std::uint8_t DeviceLoads::Known::mean() const {
  return times == 0 ? kUnknown : static_cast<std::uint8_t>(std::lround(100 * sum / times));
}

std::uint8_t DeviceLoads::Known::at(std::int64_t slot) const {
  if (slot == number) return mean();
  return slot < number && slot > number - kSlots ? percent[place_of(slot)] : kUnknown;
}

void DeviceLoads::add(DeviceRef device, float utilization, TimePoint now) {
  const std::int64_t slot = RequestHistory::number_of(now);
  if (!known_.contains(device) && known_.size() == kDevicesMax) {
    const auto oldest = std::ranges::min_element(
        known_, {}, [](const auto& entry) { return entry.second.number; });
    if (oldest->second.number >= slot - 1) return;  // all are heard of
    known_.erase(oldest);
  }
  const auto [at, is_new] = known_.try_emplace(device);
  Known& known = at->second;
  if (is_new) {
    known.percent.fill(kUnknown);
    known.number = slot;
  }
  if (known.number < slot) {
    known.percent[place_of(known.number)] = known.mean();
    for (std::int64_t n = std::max(known.number + 1, slot - kSlots); n < slot; ++n)
      known.percent[place_of(n)] = kUnknown;
    known.number = slot;
    known.sum = known.times = 0;
  }
  known.sum += std::clamp(utilization, 0.0f, 1.0f);
  ++known.times;
}

std::vector<DeviceLoads::Load> DeviceLoads::loads(TimePoint now, std::size_t count) const {
  const std::int64_t end = RequestHistory::number_of(now);
  const std::int64_t begin = end - static_cast<std::int64_t>(count);
  std::vector<Load> loads;
  for (const auto& [device, known] : known_) {
    Load load{device, {}};
    for (std::int64_t slot = begin; slot < end; ++slot) load.percent.push_back(known.at(slot));
    if (std::ranges::any_of(load.percent, [](std::uint8_t percent) { return percent != kUnknown; }))
      loads.push_back(std::move(load));
  }
  return loads;
}

}  // namespace troupe
