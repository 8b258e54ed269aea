#include "actors/control/file_lock.h"

#include <doctest/doctest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <string>
#include <thread>
#include <vector>

#include "actors/control/private_file.h"
#include "runtime/clock.h"

using namespace troupe;
using namespace troupe::control;

namespace {

/// A file with a number in it.
struct CountFile {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("troupe-locks-" + std::to_string(::getpid()));
  std::filesystem::path path = folder / "count";

  CountFile() {
    std::filesystem::create_directories(folder);
    REQUIRE(write_private_file(path, "0", IfExists::kReplace).ok());
  }
  ~CountFile() { std::filesystem::remove_all(folder); }

  /// Adds one, that many times; whoever was faster is no error.
  bool count(int times) const {
    while (times > 0) {
      const auto text = read_small_file(path, 100);
      if (!text.ok()) return false;
      if (replace_private_file(path, *text, std::to_string(std::stoi(*text) + 1), 100).ok())
        --times;
    }
    return true;
  }
};

}  // namespace

TEST_CASE("threads and processes that replace a file lose nothing") {
  constexpr int kTimes = 50;
  const CountFile file;
  std::vector<pid_t> processes;
  for (int i = 0; i < 2; ++i) {
    processes.push_back(::fork());
    if (processes.back() == 0) ::_exit(file.count(kTimes) ? 0 : 1);
  }
  std::vector<std::thread> threads;
  for (int i = 0; i < 2; ++i) threads.emplace_back([&] { file.count(kTimes); });
  for (std::thread& thread : threads) thread.join();
  for (const pid_t process : processes) {
    int status = -1;
    CHECK(::waitpid(process, &status, 0) == process);
    CHECK(status == 0);
  }
  CHECK(*read_small_file(file.path, 100) == std::to_string(4 * kTimes));
}

TEST_CASE("what root makes in a folder of a service's is the service's") {
  if (::geteuid() != 0) return;
  const CountFile file;
  constexpr uid_t kService = 12345;
  REQUIRE(::chown(file.folder.c_str(), kService, kService) == 0);
  REQUIRE(write_private_file(file.folder / "new", "1", IfExists::kKeep).ok());
  REQUIRE(write_private_file(file.folder / "newer", "1", IfExists::kReplace).ok());
  REQUIRE(FileLock::take(file.folder / "lock", FileLock::IfMissing::kMake).ok());
  for (const char* name : {"new", "newer", "lock"}) {
    struct stat made {};
    REQUIRE(::stat((file.folder / name).c_str(), &made) == 0);
    CHECK(made.st_uid == kService);
    CHECK((made.st_mode & 0777) == 0600);
  }
}

TEST_CASE("a lock is waited for, and goes on to the file that takes the place") {
  const CountFile file;
  {
    const auto held = FileLock::take(file.path);
    REQUIRE(held.ok());
    const TimePoint begun = now();
    const auto second = FileLock::take(file.path);
    REQUIRE_FALSE(second.ok());
    CHECK(second.error().code == ErrorCode::kUnavailable);
    CHECK(now() - begun >= std::chrono::seconds(2));
    REQUIRE(write_private_file(file.path, "7", IfExists::kReplace).ok());
    CHECK(FileLock::take(file.path).ok());  // another file
  }
  CHECK_FALSE(replace_private_file(file.path, "0", "1", 100).ok());
  CHECK(replace_private_file(file.path, "7", "8", 100).ok());
  // One that may only be read is its folder's owner's to replace.
  REQUIRE(::chmod(file.path.c_str(), 0400) == 0);
  CHECK(replace_private_file(file.path, "8", "9", 100).ok());
  CHECK(FileLock::take(file.folder / "none").error().code == ErrorCode::kNotFound);
  CHECK(FileLock::take(file.folder / "none", FileLock::IfMissing::kMake).ok());
}
