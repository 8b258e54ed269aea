#pragma once

#include <deque>

#include "actors/device/device.h"
#include "tests/sim/sim_host.h"

namespace troupe::sim {

/// A device in virtual time: every job takes a moment, one after the other. A stuck one computes
/// nothing while it lasts; a slow one takes several times as long. One whose kernels broke computes
/// something else until a question whose answer is known finds it.
class SimDevice final : public Device {
 public:
  SimDevice(SimHost& host, const Options& options) : Device(options), host_(host) {}

  Status submit(std::function<void()> job, Room room = Room::kBounded) override;
  bool makes_progress(TimePoint now, Duration patience) override;
  void probe() override;
  std::uint32_t probe_us() const override { return probe_us_; }
  float take_utilization(TimePoint) override { return 0.5f; }

  void set_stuck(bool stuck);
  void set_slow(bool slow) { slow_ = slow; }
  void break_kernels();
  /// Drops what waits; the process is dead.
  void clear() {
    jobs_.clear();
    pool().clear();
  }
  bool stuck() const { return stuck_; }
  bool slow() const { return slow_; }
  /// What its answers are spoilt by; 0: they are right.
  std::uint64_t wrong() const { return wrong_; }

 private:
  void run_next();

  SimHost& host_;
  bool stuck_ = false;
  bool slow_ = false;
  std::uint64_t wrong_ = 0;
  std::deque<Task> jobs_;
  int due_ = 0;            ///< of the jobs, while it is stuck
  TimePoint due_since_{};  ///< the oldest of these
  TimePoint free_at_{};
  std::uint32_t probe_us_ = 0;
};

}  // namespace troupe::sim
