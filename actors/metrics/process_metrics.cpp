#include "actors/metrics/process_metrics.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <optional>
#include <sstream>
#include <string>

namespace troupe {
namespace {

using prometheus::MetricFamily;
using prometheus::MetricType;

std::string text_of(const char* path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}

/// Fields of /proc/self/stat as proc(5) counts them; those before the third may hold spaces.
struct ProcessStat {
  double cpu_ticks = 0, started_ticks = 0, resident_pages = 0;
};
std::optional<ProcessStat> read_stat() {
  const std::string text = text_of("/proc/self/stat");
  const auto name_end = text.rfind(')');
  if (name_end == std::string::npos) return std::nullopt;
  std::istringstream words(text.substr(name_end + 1));
  ProcessStat stat;
  std::string word;
  for (int field = 3; field <= 24 && words >> word; ++field) {
    const double value = std::strtod(word.c_str(), nullptr);
    if (field == 14 || field == 15) stat.cpu_ticks += value;  // in the program, in the kernel
    if (field == 22) stat.started_ticks = value;              // since the system started
    if (field == 24) stat.resident_pages = value;
  }
  return stat;
}

/// When the system started, in Unix seconds.
std::optional<double> boot_time() {
  const std::string text = text_of("/proc/stat");
  const std::string name = "\nbtime ";
  const auto at = text.find(name);
  if (at == std::string::npos) return std::nullopt;
  return std::strtod(text.c_str() + at + name.size(), nullptr);
}

std::optional<double> open_files() {
  std::error_code failure;
  const std::filesystem::directory_iterator files("/proc/self/fd", failure);
  if (failure) return std::nullopt;
  return static_cast<double>(std::distance(begin(files), end(files))) - 1;  // one is this look
}

MetricFamily family(const char* name, const char* help, MetricType type, double value) {
  prometheus::ClientMetric metric;
  if (type == MetricType::Counter)
    metric.counter.value = value;
  else
    metric.gauge.value = value;
  return {name, help, type, {metric}};
}

}  // namespace

std::vector<MetricFamily> process_metrics() {
  std::vector<MetricFamily> families;
  const auto ticks_a_second = static_cast<double>(sysconf(_SC_CLK_TCK));
  if (const auto stat = read_stat()) {
    families.push_back(family("process_cpu_seconds_total", "Processor time, in seconds.",
                              MetricType::Counter, stat->cpu_ticks / ticks_a_second));
    families.push_back(
        family("process_resident_memory_bytes", "Memory that is in use.", MetricType::Gauge,
               stat->resident_pages * static_cast<double>(sysconf(_SC_PAGESIZE))));
    if (const auto booted = boot_time())
      families.push_back(family("process_start_time_seconds", "When it started, in Unix seconds.",
                                MetricType::Gauge, *booted + stat->started_ticks / ticks_a_second));
  }
  if (const auto files = open_files())
    families.push_back(
        family("process_open_fds", "Open file descriptors.", MetricType::Gauge, *files));
  return families;
}

}  // namespace troupe
