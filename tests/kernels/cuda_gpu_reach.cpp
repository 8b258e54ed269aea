#include <doctest/doctest.h>
#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>

#include "kernels/cuda/gpu_pins.h"
#include "reaching_backend.h"

namespace troupe::kernels {
namespace {

/// All that a test holds at a time.
constexpr std::size_t kHeapBytes = 4ull << 30;

bool heap_is_pinned = false;

/// Mappings that were taken from the pinned heap: where they begin, their bytes, and how many of
/// those have not been let go.
struct Mapping {
  std::size_t bytes, left;
};
std::mutex mappings_mutex;
std::map<std::byte*, Mapping> mappings;

/// The mapping that an address belongs to; under the mutex.
auto mapping_of(std::byte* at) {
  auto found = mappings.upper_bound(at);
  if (found == mappings.begin()) return mappings.end();
  --found;
  return at < found->first + found->second.bytes ? found : mappings.end();
}

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

/// Buffers map what is large. Those of this program come from the heap once that is pinned: the
/// linker calls these (--wrap).
extern "C" {
void* __real_mmap(void*, std::size_t, int, int, int, off_t);
int __real_munmap(void*, std::size_t);
int __real_madvise(void*, std::size_t, int);

void* __wrap_mmap(void* at, std::size_t bytes, int may, int flags, int file, off_t offset) {
  if (!heap_is_pinned || at != nullptr || may != (PROT_READ | PROT_WRITE) ||
      flags != (MAP_PRIVATE | MAP_ANONYMOUS))
    return __real_mmap(at, bytes, may, flags, file, offset);
  constexpr std::size_t kPage = 4096;
  const std::size_t whole = (bytes + kPage - 1) / kPage * kPage;
  auto* const memory = static_cast<std::byte*>(std::aligned_alloc(kPage, whole));
  if (memory == nullptr) {
    errno = ENOMEM;
    return MAP_FAILED;
  }
  std::memset(memory, 0, whole);
  const std::lock_guard lock(mappings_mutex);
  mappings[memory] = {whole, whole};
  return memory;
}

int __wrap_munmap(void* at, std::size_t bytes) {
  const std::lock_guard lock(mappings_mutex);
  const auto found = mapping_of(static_cast<std::byte*>(at));
  if (found == mappings.end()) return __real_munmap(at, bytes);
  Mapping& mapping = found->second;
  mapping.left -= std::min(mapping.left, (bytes + 4095) / 4096 * 4096);
  if (mapping.left == 0) {
    std::free(found->first);
    mappings.erase(found);
  }
  return 0;
}

/// Pinned pages stay where they are.
int __wrap_madvise(void* at, std::size_t bytes, int advice) {
  const std::lock_guard lock(mappings_mutex);
  if (mapping_of(static_cast<std::byte*>(at)) == mappings.end())
    return __real_madvise(at, bytes, advice);
  if (advice == MADV_DONTNEED) std::memset(at, 0, bytes);
  return 0;
}
}

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
