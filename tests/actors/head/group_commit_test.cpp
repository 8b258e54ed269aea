#include <doctest/doctest.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/head/file_system.h"
#include "actors/head/journal_writer.h"
#include "tests/patience.h"

// This program's own: every sync of a file goes through here.

namespace {

/// A disk on which a sync takes as long as the test wants.
struct SlowDisk {
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;    // guarded by mutex
  int allowed = 0;  // guarded by mutex

  int sync(int fd) {
    std::unique_lock lock(mutex);
    const int number = ++begun;
    changed.notify_all();
    changed.wait(lock, [&] { return allowed >= number; });
    return static_cast<int>(::syscall(SYS_fdatasync, fd));
  }
  void allow(int syncs) {
    const std::scoped_lock lock(mutex);
    allowed = syncs;
    changed.notify_all();
  }
  bool wait_begun(int syncs) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, troupe::kTestPatience, [&] { return begun >= syncs; });
  }
} disk;

}  // namespace

extern "C" int fdatasync(int fd) { return disk.sync(fd); }

namespace troupe {
namespace {

KeepRecords acceptance(std::uint64_t number) {
  auto prepared = std::make_shared<PreparedRequest>();
  prepared->prompt = {1, 2, 3};
  prepared->max_tokens = 4;
  prepared->seed = 1;
  prepared->name = std::make_shared<const RequestName>(
      RequestName{.id = "r" + std::to_string(number), .form = "{}"});
  return {.file = 1,
          .mark = number,
          .begins = number == 1,
          .completes = number == 1,
          .records = {JournalAccepted{number, SequenceId{number}, 1000, prepared}}};
}

}  // namespace

TEST_CASE("acceptances that come while the disk syncs share the next sync") {
  constexpr std::uint64_t kMany = 500;
  const std::string folder =
      std::filesystem::temp_directory_path() / ("troupe-group-" + std::to_string(::getpid()));
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> marks;
  const auto wait_kept = [&](std::uint64_t mark) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience,
                            [&] { return !marks.empty() && marks.back() >= mark; });
  };
  {
    JournalWriter writer({.disk = {.files = std::make_shared<DiskFiles>(),
                                   .folder = folder + "/journal",
                                   .heading = {.model = "model"},
                                   .damaged = {},
                                   .random = [] { return 3; }},
                          .kept =
                              [&](JournalKept kept) {
                                const std::scoped_lock lock(mutex);
                                marks.push_back(kept.mark);
                                changed.notify_all();
                              },
                          .failed = [](JournalFailed) {}});
    writer.begin();
    writer.keep(acceptance(1));
    REQUIRE(disk.wait_begun(1));
    for (std::uint64_t i = 2; i <= kMany; ++i) writer.keep(acceptance(i));
    {
      const std::scoped_lock lock(mutex);
      CHECK(marks.empty());  // nothing counts as kept before its sync is over
    }
    disk.allow(1);
    REQUIRE(wait_kept(1));
    REQUIRE(disk.wait_begun(2));
    disk.allow(2);
    REQUIRE(wait_kept(kMany));
    CHECK(marks == std::vector<std::uint64_t>{1, kMany});
    CHECK(disk.begun == 2);
  }
  std::filesystem::remove_all(folder);
}

}  // namespace troupe
