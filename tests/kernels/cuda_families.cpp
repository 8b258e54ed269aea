/// The CUDA back-end on a GPU, where there is one that reaches the memory which tests have;
/// elsewhere only that the program starts.
#include <doctest/doctest.h>

#include "families.h"
#include "kernels/known_answers.h"
#include "reaching_backend.h"

namespace troupe::kernels {

const std::vector<Family>& families() {
  static const std::vector<Family> all = [] {
    std::vector<Family> found;
    if (const Backend* backend = reaching_backend(); backend != nullptr)
      found.push_back({Numerics::kBf16, CpuFamily::kBaseline, backend});
    return found;
  }();
  return all;
}

namespace {

/// What every worker asks of its devices before it offers them: in the GPU's own memory, so it runs
/// with any driver.
TEST_CASE("known questions are answered in the memory of the GPU") {
  const Backend* backend = cuda_backend();
  if (backend == nullptr) {
    MESSAGE("there is no GPU: no kernel runs");
    return;
  }
  const auto device = backend->accelerator({.memory_bytes = 512u << 20});
  REQUIRE_MESSAGE(device.ok(), (device.ok() ? "" : device.error().message));
  for (const Numerics numerics : {Numerics::kBf16, Numerics::kBf16KvFp8})
    for (std::size_t i = 0; i < known_questions().size(); ++i) {
      Stream stream({.numerics = numerics, .backend = backend, .accelerator = device->get()});
      INFO(to_string(numerics), ", question ", i);
      CHECK(ask(stream, i) == known_answer(numerics, i));
    }
}

}  // namespace
}  // namespace troupe::kernels
