#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/device_health.h"
#include "runtime/result.h"

namespace troupe {

/// How a GPU is, as its driver tells.
struct GpuHealth {
  DeviceHealth health;
  bool lost = false;  ///< it has fallen off the bus, or needs a reset
};

/// The driver's management library (libnvidia-ml), loaded when it is asked for: a build does not
/// need it. Its calls may take long where a GPU hangs. Of one thread at a time.
class Nvml {
 public:
  /// kNotFound: there is none, as on a machine without a driver. `path`: of the library.
  static Result<std::unique_ptr<Nvml>> open(const std::string& path = "libnvidia-ml.so.1");
  ~Nvml();
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  /// Of the GPU at that place on the bus, such as "0000:65:00.0".
  Result<GpuHealth> look(const std::string& bus_id);

 private:
  struct Calls;
  explicit Nvml(std::unique_ptr<Calls> calls);
  std::unique_ptr<Calls> calls_;
};

/// Of reasons as bits, those that say that it is too hot or gets too little power, in words.
std::string throttle_reasons(std::uint64_t reasons);

}  // namespace troupe
