#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "actors/metrics/request_history.h"
#include "runtime/clock.h"
#include "runtime/ids.h"

namespace troupe {

/// How busy each device was in the last hour, in the slots of RequestHistory: the mean of what it
/// said. A kilobyte a device; of more than kDevicesMax those that are heard of are kept. Not
/// thread-safe; times must not go back.
class DeviceLoads {
 public:
  static constexpr std::size_t kDevicesMax = 1024;
  static constexpr std::uint8_t kUnknown = 255;

  struct Load {
    DeviceRef device;
    std::vector<std::uint8_t> percent;  ///< 0 to 100 of each slot, or kUnknown; the newest last
  };

  /// `utilization` is a share of the time since the device spoke before, 0 to 1.
  void add(DeviceRef device, float utilization, TimePoint now);
  /// Of the last `count` slots that are over, devices that said something in them.
  std::vector<Load> loads(TimePoint now, std::size_t count) const;

 private:
  struct Known {
    std::int64_t number = 0;  ///< of the slot that goes on
    double sum = 0;           ///< in it
    std::uint32_t times = 0;
    std::array<std::uint8_t, RequestHistory::kSlots> percent{};  ///< by number, of those before it

    std::uint8_t mean() const;
    std::uint8_t at(std::int64_t slot) const;
  };
  std::map<DeviceRef, Known> known_;
};

}  // namespace troupe
