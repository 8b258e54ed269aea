#include <doctest/doctest.h>
#include <malloc.h>

#include <cstdint>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include "kernels/cuda/gpu_pins.h"
#include "reaching_backend.h"

namespace troupe::kernels {
namespace {

/// All that a test holds at a time.
constexpr std::size_t kHeapBytes = 1u << 30;

bool heap_is_pinned = false;

/// Pins all of malloc's memory at its addresses. Before CUDA has threads: they would have heaps of
/// their own.
void grow_heap() {
  mallopt(M_ARENA_MAX, 1);
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  void* volatile grown = std::malloc(kHeapBytes);
  std::free(grown);
}

bool pin_heap() {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    if (!line.ends_with("[heap]")) continue;
    const std::uintptr_t first = std::stoull(line, nullptr, 16);
    const std::uintptr_t end = std::stoull(line.substr(line.find('-') + 1), nullptr, 16);
    return end - first >= kHeapBytes &&
           pin_for_gpu(reinterpret_cast<std::byte*>(first), end - first);
  }
  return false;
}

struct PinHeap final : doctest::IReporter {
  explicit PinHeap(const doctest::ContextOptions&) {}
  void test_run_start() override {
    if (!std::filesystem::exists("/dev/nvidiactl")) return;
    grow_heap();
    const Backend* backend = cuda_backend();
    heap_is_pinned = backend != nullptr && !backend->reaches_host && pin_heap();
  }
  void report_query(const doctest::QueryData&) override {}
  void test_run_end(const doctest::TestRunStats&) override {}
  void test_case_start(const doctest::TestCaseData&) override {}
  void test_case_reenter(const doctest::TestCaseData&) override {}
  void test_case_end(const doctest::CurrentTestCaseStats&) override {}
  void test_case_exception(const doctest::TestCaseException&) override {}
  void subcase_start(const doctest::SubcaseSignature&) override {}
  void subcase_end() override {}
  void log_assert(const doctest::AssertData&) override {}
  void log_message(const doctest::MessageData&) override {}
  void test_case_skipped(const doctest::TestCaseData&) override {}
};
REGISTER_LISTENER("pin_heap", 1, PinHeap);

}  // namespace

const Backend* reaching_backend() {
  const Backend* backend = cuda_backend();
  return backend != nullptr && (backend->reaches_host || heap_is_pinned) ? backend : nullptr;
}

namespace {

TEST_CASE("a program with the CUDA back-end starts with and without a driver") {
  const Backend* backend = cuda_backend();
  if (!std::filesystem::exists("/dev/nvidiactl")) CHECK(backend == nullptr);
  if (backend != nullptr) CHECK(backend->name == "cuda");
  if (heap_is_pinned)
    MESSAGE("the GPU reaches the heap alone of the host's memory, which is pinned");
  if (reaching_backend() == nullptr)
    MESSAGE("no GPU that reaches the host's memory, pinned or not: no kernel runs");
}

}  // namespace
}  // namespace troupe::kernels
