#include "tests/sim/sim_device.h"

#include "runtime/limits.h"

namespace troupe::sim {
namespace {

constexpr Duration kJobTime = std::chrono::microseconds(80);
/// What a slow device's work takes, in what it usually does.
constexpr int kSlowFactor = 8;
/// Within this time all questions whose answers are known are asked; a minute in a process.
constexpr std::uint64_t kKnownRoundMs = 2000;

}  // namespace

Status SimDevice::submit(std::function<void()> job, Room room) {
  if (!host_.alive()) return {};
  if (room == Room::kBounded && jobs_.size() >= limits::kComputeQueueMax)
    return resource_exhausted("A device has too many jobs waiting.");
  jobs_.push_back(std::move(job));
  free_at_ = std::max(free_at_, host_.now()) + kJobTime * (slow_ ? kSlowFactor : 1);
  host_.later(free_at_ - host_.now(), [this] { run_next(); });
  return {};
}

void SimDevice::run_next() {
  if (stuck_) {
    if (due_++ == 0) due_since_ = host_.now();
    return;
  }
  const Task job = std::move(jobs_.front());
  jobs_.pop_front();
  job();
}

void SimDevice::set_stuck(bool stuck) {
  stuck_ = stuck;
  if (stuck) return;
  for (; due_ > 0; --due_) host_.later({}, [this] { run_next(); });
}

void SimDevice::break_kernels() {
  wrong_ = host_.loop().draw() | 1;
  host_.later(host_.loop().pick_ms(0, kKnownRoundMs),
              [this] { fail("a known answer is another one"); });
}

bool SimDevice::makes_progress(TimePoint now, Duration patience) {
  return due_ == 0 || now - due_since_ < patience;
}

void SimDevice::probe() {
  (void)submit([this] {
    probe_us_ = static_cast<std::uint32_t>(host_.loop().pick(95, 120)) *
                static_cast<std::uint32_t>(slow_ ? kSlowFactor : 1);
  });
}

}  // namespace troupe::sim
