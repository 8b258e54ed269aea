#include "actors/supervisor/slow_devices.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "actors/supervisor/times.h"

namespace troupe {

SlowDevices::Changes SlowDevices::check(TimePoint now) {
  std::map<DeviceRef, double> slowdowns;
  for (const auto& [device, watch] : speeds_)
    if (const auto s = watch.slowdown()) slowdowns[device] = *s;
  Changes changes;
  for (const auto& [device, slowdown] : slowdowns) {
    std::vector<double> others;
    for (const auto& [other, s] : slowdowns)
      if (other != device) others.push_back(s);
    if (others.empty()) continue;
    std::nth_element(others.begin(), others.begin() + others.size() / 2, others.end());
    const double usual = others[others.size() / 2];
    SpeedWatch& watch = speeds_.at(device);
    if (slowdown >= SpeedWatch::kSlow * std::max(1.0, usual / SpeedWatch::kFine)) {
      if (!watch.slow_since) watch.slow_since = now;
      if (now - *watch.slow_since < kSlowAfter) continue;
      if (slow_.insert(device).second) {
        changes.slow = true;
        changes.texts.push_back(
            to_string(device) + " takes " + std::to_string(static_cast<int>(slowdown)) +
            " times as long as at its best; others are asked instead where they can be.");
      }
      if (!watch.drained && now - *watch.slow_since >= kSlowDrainAfter) {
        watch.drained = true;
        changes.drained = true;
      }
    } else if (!slow_.contains(device)) {
      watch.slow_since.reset();
    } else if (slowdown <= SpeedWatch::kFine * std::max(1.0, usual)) {
      slow_.erase(device);
      changes.slow = true;
      watch.slow_since.reset();
      changes.drained = std::exchange(watch.drained, false) || changes.drained;
      changes.texts.push_back(to_string(device) + " is as fast as it was again.");
    }
  }
  return changes;
}

void SlowDevices::forget(NodeId node) {
  std::erase_if(speeds_, [&](const auto& entry) { return entry.first.node == node; });
  std::erase_if(slow_, [&](const auto& device) { return device.node == node; });
}

void SlowDevices::keep_drained(TimePoint now) {
  for (auto& [device, watch] : speeds_)
    if (std::exchange(watch.drained, false)) watch.slow_since = now;
}

bool SlowDevices::drained(const DeviceRef& device) const {
  const auto it = speeds_.find(device);
  return it != speeds_.end() && it->second.drained;
}

std::string SlowDevices::violation() const {
  for (const auto& [device, watch] : speeds_)
    if (watch.drained && !slow_.contains(device))
      return to_string(device) + " is drained for its speed and is not slow.";
  for (const auto& device : slow_)
    if (const auto it = speeds_.find(device); it == speeds_.end() || !it->second.slow_since)
      return to_string(device) + " is slow, and nobody knows since when.";
  return {};
}

}  // namespace troupe
