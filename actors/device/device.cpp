#include "actors/device/device.h"

#include <cassert>
#include <utility>

#include "runtime/byte_size.h"

namespace troupe {

Device::Device(const Options& options)
    : options_(options), experts_(std::make_shared<const ExpertSet>()), serving_(experts_) {}

std::shared_ptr<const ExpertSet> Device::experts() const {
  std::lock_guard lock(experts_mutex_);
  return experts_;
}

std::shared_ptr<const ExpertSet> Device::serving_experts() const {
  std::lock_guard lock(experts_mutex_);
  return serving_;
}

void Device::publish(std::shared_ptr<const ExpertSet> experts,
                     std::shared_ptr<const ExpertSet> serving) {
  std::lock_guard lock(experts_mutex_);
  experts_.swap(experts);
  serving_.swap(serving);
}

Device::Claim& Device::Claim::operator=(Claim&& other) noexcept {
  std::swap(device_, other.device_);
  std::swap(bytes_, other.bytes_);
  return *this;
}

Device::Claim::~Claim() {
  if (device_) device_->memory_used_.fetch_sub(bytes_);
}

Device::Claim Device::Claim::split(std::uint64_t bytes) {
  assert(bytes <= bytes_);
  Claim part;
  part.device_ = device_;
  part.bytes_ = bytes;
  bytes_ -= bytes;
  return part;
}

Result<Device::Claim> Device::claim(std::uint64_t bytes, const std::string& what) {
  const std::uint64_t before = memory_used_.fetch_add(bytes);
  if (before + bytes > options_.memory_total) {
    memory_used_.fetch_sub(bytes);
    return resource_exhausted(what + " needs " + format_byte_size(bytes) + ", which is " +
                              format_byte_size(before + bytes - options_.memory_total) + " (" +
                              std::to_string(before + bytes - options_.memory_total) +
                              " bytes) more than device " + std::to_string(options_.index) +
                              " has left; give it more with --device-memory or add devices.");
  }
  Claim claim;
  claim.device_ = this;
  claim.bytes_ = bytes;
  return claim;
}

std::shared_ptr<const void> Device::note_express() {
  ++express_waiting_;
  return {&express_waiting_, [](std::atomic<int>* waiting) { --*waiting; }};
}

DeviceHealth Device::health() const {
  std::lock_guard lock(health_mutex_);
  return health_;
}

void Device::set_health(const DeviceHealth& health) {
  std::lock_guard lock(health_mutex_);
  health_ = health;
}

void Device::fail(const std::string& reason) {
  {
    std::lock_guard lock(failed_mutex_);
    if (!failed_.empty()) return;
    failed_ = reason.empty() ? "unknown" : reason;
  }
  note_failed(reason);
  if (on_failed_) on_failed_();
}

std::string Device::failed() const {
  std::lock_guard lock(failed_mutex_);
  return failed_;
}

}  // namespace troupe
