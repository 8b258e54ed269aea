#include "actors/device/nvml.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <future>
#include <mutex>
#include <string>
#include <vector>

#include "actors/device/gpu_watch.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

/// The driver's library, as the double says that it is.
class Driver {
 public:
  Driver()
      : path_(std::filesystem::temp_directory_path() / ("nvml-" + std::to_string(getpid()))) {
    setenv("NVML_DOUBLE", path_.c_str(), 1);
    says("");
  }
  ~Driver() { std::filesystem::remove(path_); }

  void says(const std::string& text) const {
    const std::string next = path_.string() + ".next";
    std::ofstream(next) << text;
    std::filesystem::rename(next, path_);
  }
  static std::unique_ptr<Nvml> open() {
    auto nvml = Nvml::open(NVML_DOUBLE_PATH);
    REQUIRE(nvml.ok());
    return std::move(*nvml);
  }

 private:
  std::filesystem::path path_;
};

}  // namespace

TEST_CASE("a GPU is as its driver says") {
  const Driver driver;
  const auto nvml = Driver::open();
  driver.says("utilization 37\ntemperature 64\necc 2\nthrottle 0x41\n");
  const auto found = nvml->look("0000:65:00.0");
  REQUIRE(found.ok());
  CHECK(!found->lost);
  CHECK(found->health.utilization == 0.37f);
  CHECK(found->health.temperature_c == 64u);
  CHECK(found->health.ecc_errors == 2u);
  CHECK(found->health.throttled == "too hot, slowed down by the hardware");
}

TEST_CASE("what a GPU does not support is not known") {
  const Driver driver;
  const auto nvml = Driver::open();
  driver.says("utilization 37\ntemperature 64\ncode 3\n");
  const auto found = nvml->look("0000:65:00.0");
  REQUIRE(found.ok());
  CHECK(found->health == DeviceHealth{});
  CHECK(!found->lost);
}

TEST_CASE("a GPU that is gone is told from one that cannot be found") {
  const Driver driver;
  const auto nvml = Driver::open();
  for (const char* gone : {"code 15", "code 16", "find 15"}) {
    driver.says(gone);
    const auto found = nvml->look("0000:65:00.0");
    REQUIRE(found.ok());
    CHECK(found->lost);
  }
  driver.says("find 6");
  const auto none = nvml->look("0000:65:00.0");
  REQUIRE(!none.ok());
  CHECK(none.error().message.find("find the GPU at 0000:65:00.0") != std::string::npos);
}

TEST_CASE("a library that is not there, is another, or does not begin") {
  const auto none = Nvml::open("/no/such.so");
  REQUIRE(!none.ok());
  CHECK(none.error().code == ErrorCode::kNotFound);
  const auto other = Nvml::open("libm.so.6");
  REQUIRE(!other.ok());
  CHECK(other.error().message.find("lacks") != std::string::npos);
  const Driver driver;
  driver.says("init 9");
  const auto failed = Nvml::open(NVML_DOUBLE_PATH);
  REQUIRE(!failed.ok());
  CHECK(failed.error().message.find("cannot begin") != std::string::npos);
}

TEST_CASE("memory errors that are new, and a GPU that is gone, are told once") {
  const Driver driver;
  driver.says("ecc 5\ntemperature 50\n");  // it had these before
  std::mutex mutex;
  std::vector<std::string> broken;  // guarded by mutex
  std::promise<DeviceHealth> first, later;
  int looks = 0, looks_after = 0;  // on the watch's thread
  bool changed = false;            // guarded by mutex
  const auto seen = [&](const DeviceHealth& health) {
    if (++looks == 3) first.set_value(health);
    const std::lock_guard lock(mutex);
    if (changed && ++looks_after == 5) later.set_value(health);
  };
  const auto told = [&](const std::string& why) {
    const std::lock_guard lock(mutex);
    broken.push_back(why);
  };
  GpuWatch watch(Driver::open(), {{"0000:65:00.0", seen, told}}, 1ms);
  CHECK(first.get_future().get().temperature_c == 50u);
  {
    const std::lock_guard lock(mutex);
    CHECK(broken.empty());
    driver.says("ecc 7\n");
    changed = true;
  }
  CHECK(later.get_future().get().ecc_errors == 7u);
  const std::lock_guard lock(mutex);
  REQUIRE(broken.size() == 1);
  CHECK(broken[0].find("ECC") != std::string::npos);
  CHECK(broken[0].find("2 since") != std::string::npos);
}

}  // namespace troupe
