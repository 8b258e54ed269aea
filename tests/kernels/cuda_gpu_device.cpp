/// The accelerator of a GPU: its queue, graphs, events and memory, which have no other double than
/// the twin's accelerator.
#include <doctest/doctest.h>

#include "device_under_test.h"

namespace troupe::kernels {

const Backend* device_under_test() { return cuda_backend(); }

namespace {

TEST_CASE("a GPU that is asked for too much says so, and one that is not there too") {
  const Backend* backend = cuda_backend();
  if (backend == nullptr) {
    MESSAGE("there is no GPU: no kernel runs");
    return;
  }
  const auto large = backend->accelerator({.memory_bytes = 1ull << 50});
  REQUIRE_FALSE(large.ok());
  CHECK(large.error().message.find("lower --device-memory") != std::string::npos);
  const auto far = backend->accelerator({.index = 4096, .memory_bytes = 1u << 20});
  REQUIRE_FALSE(far.ok());
  CHECK(far.error().message.find("there is no GPU 4096") != std::string::npos);
}

}  // namespace
}  // namespace troupe::kernels
