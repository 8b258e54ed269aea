#include "actors/device/gpu_watch.h"

#include <utility>

namespace troupe {

GpuWatch::GpuWatch(std::unique_ptr<Nvml> nvml, std::vector<Gpu> gpus, Duration every)
    : nvml_(std::move(nvml)),
      gpus_(std::move(gpus)),
      every_(every),
      seen_(gpus_.size()),
      thread_([this] { run(); }) {}

GpuWatch::~GpuWatch() {
  {
    std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void GpuWatch::run() {
  std::unique_lock lock(mutex_);
  while (!stop_) {
    lock.unlock();
    for (std::size_t gpu = 0; gpu < gpus_.size(); ++gpu) look_at(gpu);
    lock.lock();
    changed_.wait_for(lock, every_, [&] { return stop_; });
  }
}

void GpuWatch::look_at(std::size_t gpu) {
  auto looked = nvml_->look(gpus_[gpu].bus_id);
  if (!looked.ok()) return;  // what it was stays; a GPU that computes shows it otherwise
  Seen& seen = seen_[gpu];
  std::string why;
  const DeviceHealth& health = looked->health;
  if (looked->lost) why = "the GPU has fallen off the bus, or needs a reset";
  if (health.ecc_errors) {
    if (!seen.ecc_before) seen.ecc_before = health.ecc_errors;
    if (*health.ecc_errors > *seen.ecc_before)
      why = "its memory has errors that it could not correct (ECC): " +
            std::to_string(*health.ecc_errors - *seen.ecc_before) + " since this worker began";
  }
  gpus_[gpu].seen(health);
  if (!why.empty() && !std::exchange(seen.told, true)) gpus_[gpu].broken(why);
}

}  // namespace troupe
