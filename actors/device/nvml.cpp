#include "actors/device/nvml.h"

#include <algorithm>
#include <array>
#include <utility>

#include "runtime/shared_object.h"

namespace troupe {
namespace {

/// Of the library's interface, nvml.h: what is used here.
using NvmlReturn = int;
using NvmlDevice = void*;
constexpr NvmlReturn kSuccess = 0, kGpuIsLost = 15, kResetRequired = 16;
constexpr int kTemperatureOfGpu = 0, kUncorrected = 1, kVolatile = 0;

constexpr const char* kDriver = "how GPUs are is told by an NVIDIA driver's, of 2016 or later";

constexpr std::array<std::pair<std::uint64_t, const char*>, 5> kReasons = {{
    {0x04, "power cap"},
    {0x08, "hardware slowdown"},
    {0x20, "too hot"},
    {0x40, "too hot, slowed down by the hardware"},
    {0x80, "power brake"},
}};

}  // namespace

struct Nvml::Calls {
  struct Utilization {
    unsigned gpu, memory;  // percent
  };

  Error failed(const char* what, NvmlReturn code) const {
    return unavailable(std::string("The driver's management library cannot ") + what + ": " +
                       error_string(code) + ".");
  }

  NvmlReturn (*init)() = nullptr;
  NvmlReturn (*shutdown)() = nullptr;
  const char* (*error_string)(NvmlReturn) = nullptr;
  NvmlReturn (*by_bus_id)(const char*, NvmlDevice*) = nullptr;
  NvmlReturn (*utilization)(NvmlDevice, Utilization*) = nullptr;
  NvmlReturn (*temperature)(NvmlDevice, int, unsigned*) = nullptr;
  NvmlReturn (*ecc_errors)(NvmlDevice, int, int, unsigned long long*) = nullptr;
  NvmlReturn (*throttle)(NvmlDevice, unsigned long long*) = nullptr;
};

Nvml::Nvml(std::unique_ptr<Calls> calls) : calls_(std::move(calls)) {}
Nvml::~Nvml() { calls_->shutdown(); }

Result<std::unique_ptr<Nvml>> Nvml::open(const std::string& path) {
  auto library = SharedObject::open(path, kDriver);
  if (!library.ok()) return not_found(library.error().message);
  auto calls = std::make_unique<Calls>();
  library->find("nvmlInit_v2", calls->init);
  library->find("nvmlShutdown", calls->shutdown);
  library->find("nvmlErrorString", calls->error_string);
  library->find("nvmlDeviceGetHandleByPciBusId_v2", calls->by_bus_id);
  library->find("nvmlDeviceGetUtilizationRates", calls->utilization);
  library->find("nvmlDeviceGetTemperature", calls->temperature);
  library->find("nvmlDeviceGetTotalEccErrors", calls->ecc_errors);
  library->find("nvmlDeviceGetCurrentClocksThrottleReasons", calls->throttle);
  if (const Status there = library->missing(kDriver); !there.ok())
    return not_found(there.error().message);
  if (const NvmlReturn begun = calls->init(); begun != kSuccess)
    return calls->failed("begin", begun);
  return std::unique_ptr<Nvml>(new Nvml(std::move(calls)));
}

Result<GpuHealth> Nvml::look(const std::string& bus_id) {
  GpuHealth found;
  DeviceHealth& health = found.health;
  /// Whether the call succeeded. What a GPU does not support stays unknown.
  const auto good = [&](NvmlReturn code) {
    found.lost |= code == kGpuIsLost || code == kResetRequired;
    return code == kSuccess;
  };
  NvmlDevice device = nullptr;
  if (const NvmlReturn code = calls_->by_bus_id(bus_id.c_str(), &device); !good(code)) {
    if (found.lost) return found;
    return calls_->failed(("find the GPU at " + bus_id).c_str(), code);
  }
  Calls::Utilization share{};
  if (good(calls_->utilization(device, &share)))
    health.utilization = static_cast<float>(std::min(share.gpu, 100u)) / 100;
  unsigned degrees = 0;
  if (good(calls_->temperature(device, kTemperatureOfGpu, &degrees)))
    health.temperature_c = degrees;
  unsigned long long errors = 0;
  if (good(calls_->ecc_errors(device, kUncorrected, kVolatile, &errors)))
    health.ecc_errors = errors;
  unsigned long long reasons = 0;
  if (good(calls_->throttle(device, &reasons))) health.throttled = throttle_reasons(reasons);
  return found;
}

std::string throttle_reasons(std::uint64_t reasons) {
  std::string text;
  for (const auto& [bit, words] : kReasons)
    if (reasons & bit) text += (text.empty() ? "" : ", ") + std::string(words);
  return text;
}

}  // namespace troupe
