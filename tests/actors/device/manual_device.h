#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <utility>

#include "actors/device/device.h"

namespace troupe::testing {

/// A device whose jobs run when the test says so.
class ManualDevice : public Device {
 public:
  ManualDevice() : Device(Options{}) {}

  Status submit(std::function<void()> job, Room room = Room::kBounded) override {
    if (refuses && room == Room::kBounded) return resource_exhausted("the queue is full");
    jobs_.push_back(std::move(job));
    return {};
  }
  /// False if there was none.
  bool run_one() {
    if (jobs_.empty()) return false;
    const auto job = std::move(jobs_.front());
    jobs_.pop_front();
    job();
    return true;
  }
  void run_all() {
    while (run_one()) {
    }
  }
  std::size_t jobs() const { return jobs_.size(); }

  bool makes_progress(TimePoint, Duration) override { return !stands_still; }
  void probe() override {}
  std::uint32_t probe_us() const override { return 0; }
  float take_utilization(TimePoint) override { return 0; }

  bool refuses = false, stands_still = false;

 private:
  std::deque<std::function<void()>> jobs_;
};

}  // namespace troupe::testing
