#include "runtime/huge_memory.h"

#include <doctest/doctest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <iterator>
#include <map>
#include <random>
#include <tuple>
#include <vector>

#include "runtime/buffer.h"

namespace troupe {
namespace {

constexpr std::size_t kPage = 4096, kMiB = 1u << 20;

/// How much of [run, run + bytes) is resident, in whole pages.
std::size_t resident(std::byte* run, std::size_t bytes) {
  const auto begin = (reinterpret_cast<std::uintptr_t>(run) + kPage - 1) / kPage * kPage;
  const auto end = (reinterpret_cast<std::uintptr_t>(run) + bytes) / kPage * kPage;
  std::vector<unsigned char> pages((end - begin) / kPage);
  REQUIRE(mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()) == 0);
  std::size_t found = 0;
  for (const unsigned char page : pages) found += (page & 1) * kPage;
  return found;
}

TEST_CASE("runs lie side by side, whatever their size") {
  HugeMemory memory;
  std::byte* const first = memory.take(1);
  CHECK(reinterpret_cast<std::uintptr_t>(first) % (2 * kMiB) == 0);
  CHECK(memory.take(3 * kMiB) == first + 64);
  CHECK(memory.take(65) == first + 64 + 3 * kMiB);
  CHECK(memory.take(64) == first + 192 + 3 * kMiB);
}

TEST_CASE("what goes returns to the system, though its neighbours stay, and is taken again") {
  HugeMemory memory;
  constexpr std::size_t kBytes = 3 * kMiB + 192;
  std::byte* runs[3];
  for (auto& run : runs) std::memset(run = memory.take(kBytes), 1, kBytes);
  REQUIRE(resident(runs[1], kBytes) >= kBytes - 2 * kPage);
  CHECK(mlock(runs[1] + kPage, kPage) == 0);  // a locked page is no exception
  memory.give_back(runs[1], kBytes);
  CHECK(resident(runs[1], kBytes) == 0);
  CHECK(runs[0][kBytes - 1] == std::byte{1});
  CHECK(runs[2][0] == std::byte{1});
  CHECK(memory.take(kBytes) == runs[1]);
}

TEST_CASE("a page that two runs share goes with the last of them") {
  HugeMemory memory;
  std::byte* const first = memory.take(kPage / 2);
  std::byte* const second = memory.take(kPage / 2);
  std::byte* const third = memory.take(kPage);
  std::memset(first, 1, 2 * kPage);
  for (const auto& [run, bytes, left] :
       {std::tuple{second, kPage / 2, kPage}, std::tuple{first, kPage / 2, std::size_t{0}}}) {
    memory.give_back(run, bytes);
    CHECK(resident(first, kPage) == left);
  }
  CHECK(third[0] == std::byte{1});
}

TEST_CASE("a chunk goes with its last run, and what is larger than one has its own") {
  HugeMemory memory;
  CHECK(memory.mapped_bytes() == 0);
  std::byte* const small = memory.take(64);
  const std::size_t chunk = memory.mapped_bytes();
  std::byte* const large = memory.take(chunk + 1);
  CHECK(memory.mapped_bytes() == 2 * chunk + 2 * kMiB);
  memory.give_back(small, 64);
  CHECK(memory.mapped_bytes() == chunk + 2 * kMiB);
  memory.give_back(large, chunk + 1);
  CHECK(memory.mapped_bytes() == 0);
  CHECK_THROWS_AS(memory.take(SIZE_MAX), std::bad_alloc);
  CHECK_THROWS_AS(memory.take(std::size_t{1} << 60), std::bad_alloc);
}

TEST_CASE("no two runs overlap, in whatever order they come and go") {
  for (unsigned seed = 1; seed <= 20; ++seed) {
    CAPTURE(seed);
    std::mt19937 random(seed);
    HugeMemory memory;
    std::map<std::byte*, std::pair<std::size_t, std::byte>> held;
    for (int step = 0; step < 2000; ++step) {
      if (held.empty() || random() % 5 < 3) {
        const std::size_t bytes = 1 + random() % (1u << (random() % 17));
        const auto mark = std::byte(random());
        std::byte* const run = memory.take(bytes);
        REQUIRE(reinterpret_cast<std::uintptr_t>(run) % HugeMemory::kLine == 0);
        std::memset(run, static_cast<int>(mark), bytes);
        REQUIRE(held.emplace(run, std::pair{bytes, mark}).second);
        continue;
      }
      const auto gone =
          std::next(held.begin(), static_cast<std::ptrdiff_t>(random() % held.size()));
      const auto [bytes, mark] = gone->second;
      REQUIRE(std::count(gone->first, gone->first + bytes, mark) ==
              static_cast<std::ptrdiff_t>(bytes));
      memory.give_back(gone->first, bytes);
      held.erase(gone);
    }
    for (const auto& [run, what] : held) memory.give_back(run, what.first);
    CHECK(memory.mapped_bytes() == 0);
  }
}

TEST_CASE("buffers of weights take no more than their bytes") {
  constexpr std::size_t kBytes = kMiB + 64, kCount = 64;
  const std::size_t before = HugeMemory::of_process(kAnyNumaNode).mapped_bytes();
  std::vector<Buffer> buffers;
  for (std::size_t i = 0; i < kCount; ++i) buffers.push_back(Buffer::in_huge_pages(kBytes));
  for (std::size_t i = 1; i < kCount; ++i)
    CHECK(buffers[i].data() == buffers[0].data() + i * kBytes);
  buffers.clear();
  CHECK(HugeMemory::of_process(kAnyNumaNode).mapped_bytes() == before);
}

TEST_CASE("a large buffer that has hardly been used takes no huge page") {
  constexpr std::size_t kBytes = 96 * kMiB + 64;
  std::vector<Buffer> buffers;
  for (int i = 0; i < 3; ++i) buffers.emplace_back(kBytes);
  for (Buffer& buffer : buffers) {
    std::memset(buffer.data(), 1, 128u << 10);
    CHECK(resident(buffer.data(), kBytes) == 128u << 10);
    std::memset(buffer.data(), 2, kBytes);
    CHECK(std::count(buffer.data(), buffer.data() + kBytes, std::byte{2}) == kBytes);
  }
}

}  // namespace
}  // namespace troupe
