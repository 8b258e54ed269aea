/// Stands in for a driver's management library. What it says of its GPUs is in the file that
/// NVML_DOUBLE names, read at every call: lines of a word and a number,
///
///     init 0  find 0  utilization 37  temperature 64  ecc 0  throttle 0x40  code 0
///
/// `init` and `find` are what these calls return, `code` what all others do.
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <string>

namespace {

unsigned long long told(const char* word) {
  const char* const path = std::getenv("NVML_DOUBLE");
  std::ifstream file(path ? path : "");
  for (std::string key, value; file >> key >> value;)
    if (key == word) return std::strtoull(value.c_str(), nullptr, 0);
  return 0;
}

int code() { return static_cast<int>(told("code")); }

struct Utilization {
  unsigned gpu, memory;
};

}  // namespace

extern "C" {

int nvmlInit_v2() { return static_cast<int>(told("init")); }
int nvmlShutdown() { return 0; }
const char* nvmlErrorString(int) { return "the double was told to fail"; }
int nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, void** device) {
  *device = const_cast<char*>(bus_id);
  return static_cast<int>(told("find"));
}
int nvmlDeviceGetUtilizationRates(void*, Utilization* share) {
  share->gpu = static_cast<unsigned>(told("utilization"));
  return code();
}
int nvmlDeviceGetTemperature(void*, int, unsigned* degrees) {
  *degrees = static_cast<unsigned>(told("temperature"));
  return code();
}
int nvmlDeviceGetTotalEccErrors(void*, int, int, unsigned long long* errors) {
  *errors = told("ecc");
  return code();
}
int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* reasons) {
  *reasons = told("throttle");
  return code();
}

}  // extern "C"
