#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/device/nvml.h"
#include "runtime/clock.h"

namespace troupe {

/// Looks at a worker's GPUs once a second, on a thread of its own: a driver that hangs delays
/// nothing else. Memory that could not be corrected since the watch began, or a GPU that is gone,
/// is told once.
class GpuWatch {
 public:
  struct Gpu {
    std::string bus_id;
    // From the watch's thread:
    std::function<void(const DeviceHealth& health)> seen;
    std::function<void(const std::string& why)> broken;
  };
  static constexpr Duration kEvery = std::chrono::seconds(1);

  explicit GpuWatch(std::unique_ptr<Nvml> nvml, std::vector<Gpu> gpus, Duration every = kEvery);
  ~GpuWatch();
  GpuWatch(const GpuWatch&) = delete;
  GpuWatch& operator=(const GpuWatch&) = delete;

 private:
  void run();
  void look_at(std::size_t gpu);

  struct Seen {
    std::optional<std::uint64_t> ecc_before;
    bool told = false;
  };

  const std::unique_ptr<Nvml> nvml_;
  const std::vector<Gpu> gpus_;
  const Duration every_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool stop_ = false;       // guarded by mutex_
  std::vector<Seen> seen_;  // on the thread only
  std::thread thread_;      // last: it uses everything above
};

}  // namespace troupe
