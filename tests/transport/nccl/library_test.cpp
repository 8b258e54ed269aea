/// What is said when libnccl or the driver is not there, not the right one, or does not work.
#include "tests/transport/nccl/support.h"

namespace troupe::testing {
namespace {

std::string trouble(const std::string& path) {
  const auto library = nccl::Library::load(path);
  REQUIRE_FALSE(library.ok());
  CHECK(library.error().code == ErrorCode::kUnavailable);
  return library.error().message;
}

bool has(const std::string& text, const char* part) { return text.find(part) != text.npos; }

TEST_CASE("a libnccl that is missing, or lacks what is needed, is a sentence") {
  CHECK(has(trouble("/nowhere/libnccl.so.2"), "/nowhere/libnccl.so.2 cannot be loaded"));
  CHECK(has(trouble("libm.so.6"), "libm.so.6 lacks ncclGetVersion; install NCCL 2.14"));
}

TEST_CASE("a libnccl of another version is refused with its number") {
  for (const auto& [code, number] :
       {std::pair("30100", "3.1.0"), {"1304", "1.3.4"}, {"2708", "2.7.8"}, {"21304", "2.13.4"}}) {
    Double::set(("version=" + std::string(code)).c_str());
    CHECK(has(trouble(TROUPE_NCCL_DOUBLE), (std::string("is NCCL ") + number).c_str()));
  }
  for (const char* code : {"21400", "22809", "23004"}) {
    Double::set(("version=" + std::string(code)).c_str());
    CHECK(must(nccl::Library::load(TROUPE_NCCL_DOUBLE))->version() == std::stoi(code));
  }
  Double::set("fail=ncclGetVersion:1");
  CHECK(has(trouble(TROUPE_NCCL_DOUBLE), "NCCL failed at its version: internal error"));
  Double::set("");
}

TEST_CASE("a driver that is missing or does not start is a sentence") {
  const auto why = [](const std::string& path) {
    const auto driver = nccl::Driver::load(path);
    REQUIRE_FALSE(driver.ok());
    return driver.error().message;
  };
  CHECK(has(why("/nowhere/libcuda.so.1"), "install NVIDIA's driver"));
  CHECK(has(why("libm.so.6"), "libm.so.6 lacks cuInit"));
  Double::set("fail=cuInit:1:100");
  CHECK(has(why(TROUPE_NCCL_DOUBLE), "driver failed at its start"));
  Double::set("fail=cuDevicePrimaryCtxRetain:1:2");
  const auto device = nccl::Device::open(must(nccl::Driver::load(TROUPE_NCCL_DOUBLE)), 3);
  REQUIRE_FALSE(device.ok());
  CHECK(has(device.error().message, "the context of GPU 3"));
  Double::set("");
}

TEST_CASE("pinned memory is used again") {
  const auto device = must(nccl::Device::open(must(nccl::Driver::load(TROUPE_NCCL_DOUBLE)), 0));
  const std::byte* first = must(device->room(5000)).data;
  CHECK(must(device->room(8000)).data == first);
  const auto held = must(device->room(8000));
  CHECK(must(device->room(8000)).data != held.data);
  CHECK(must(device->room(100)).data != first);
}

}  // namespace
}  // namespace troupe::testing
