// Rates as flags have them, and the devices with a name.

#include "tools/troupe/plan/rates.h"

#include <doctest/doctest.h>

#include "tests/model/must.h"
#include "tools/troupe/plan/device_kinds.h"

namespace troupe {
namespace {

using testing::must;

TEST_CASE("rates are read") {
  struct Case {
    const char* text;
    double bytes;
  };
  for (const Case& c : {Case{"3.0TB/s", 3e12},
                        {"50GB/s", 50e9},
                        {"400Gbit/s", 50e9},
                        {"1.5GiB/s", 1.5 * 1073741824},
                        {"25000MB/s", 25e9}}) {
    CAPTURE(std::string(c.text));
    CHECK(must(parse_bandwidth("--network", c.text)) == c.bytes);
  }
  CHECK(must(parse_compute("--compute", "800TFLOP/s")) == 800e12);
  CHECK(must(parse_compute("--compute", "1.979PFLOPS")) == doctest::Approx(1979e12));
  CHECK(must(parse_compute("--compute", "350GFLOP/s")) == 350e9);
}

TEST_CASE("what is no rate is refused, with what to write") {
  for (const char* text : {"", "0", "0GB/s", "50", "50GB", "-1GB/s", "GB/s", "50gb/s", "1e30TB/s",
                           "nanGB/s", "9000000TB/s", "1B/s", "800TFLOP/s"}) {
    CAPTURE(std::string(text));
    const auto rate = parse_bandwidth("--network", text);
    REQUIRE(!rate.ok());
    CHECK(rate.error().code == ErrorCode::kInvalidArgument);
    CHECK(rate.error().message.starts_with("--network '"));
    CHECK(rate.error().message.find("3.0TB/s") != std::string::npos);
  }
  for (const char* text :
       {"", "0TFLOP/s", "800", "800T", "3TB/s", "1GFLOP/s/s", "2000000PFLOP/s"}) {
    CAPTURE(std::string(text));
    const auto rate = parse_compute("--compute", text);
    REQUIRE(!rate.ok());
    CHECK(rate.error().message.find("800TFLOP/s") != std::string::npos);
  }
}

TEST_CASE("numbers for people have three digits") {
  struct Case {
    double value;
    const char* text;
  };
  for (const Case& c : {Case{0.5, "0.50 "},
                        {3.35e12, "3.35 T"},
                        {989.4e12, "989 T"},
                        {999.9e9, "1.00 T"},
                        {50e9, "50.0 G"},
                        {999, "999 "}})
    CHECK(decimal(c.value) == c.text);
}

TEST_CASE("devices with a name have ceilings that make sense") {
  for (const char* name :
       {"a10-24g", "l4-24g", "rtx4090-24g", "rtx5090-32g", "a100-40g", "l40s-48g", "a100-80g",
        "h100-80g", "h20-96g", "h200-141g", "b200-180g", "b200-192g", "mi300x-192g"}) {
    CAPTURE(std::string(name));
    const DeviceKind* kind = find_device_kind(name);
    REQUIRE(kind != nullptr);
    const Ceilings& c = kind->ceilings;
    CHECK(c.memory >= 0.3e12);
    CHECK(c.memory <= 8e12);
    CHECK(c.fma < c.bf16);
    CHECK((c.fp8 == 0 || doctest::Approx(2 * c.bf16).epsilon(0.02) == c.fp8));
    CHECK(c.network < c.link);
    CHECK(known_device_kinds().find(name) != std::string::npos);
  }
  CHECK(find_device_kind("h100-80g")->ceilings.memory == 3.35e12);
  CHECK(find_device_kind("h100") == nullptr);
  CHECK(nearest_device_kind("h100-80gb") == "h100-80g");
  CHECK(nearest_device_kind("rtx-4090") == "rtx4090-24g");
  CHECK(nearest_device_kind("b200") == "b200-180g");
}

}  // namespace
}  // namespace troupe
