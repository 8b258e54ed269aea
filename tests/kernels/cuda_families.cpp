/// The CUDA back-end on a GPU, where there is one whose driver lets it reach all of the host's
/// memory, as tests have it; elsewhere only that the program starts.
#include <doctest/doctest.h>

#include <filesystem>

#include "families.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    const Backend* backend = cuda_backend();
    if (backend != nullptr && backend->reaches_host)
      found.push_back({Numerics::kBf16, CpuFamily::kBaseline, backend});
    return found;
  }();
  return all;
}

namespace {

TEST_CASE("a program with the CUDA back-end starts with and without a driver") {
  const Backend* backend = cuda_backend();
  if (!std::filesystem::exists("/dev/nvidiactl")) CHECK(backend == nullptr);
  if (backend != nullptr) CHECK(backend->name == "cuda");
  if (families().empty()) MESSAGE("no GPU that reaches the host's memory: no kernel runs");
}

}  // namespace
}  // namespace troupe::kernels
