#include "actors/head/journal_writer.h"

#include <doctest/doctest.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "tests/actors/head/forgetful_files.h"
#include "tests/actors/head/journal_samples.h"
#include "tests/patience.h"

using namespace troupe;
using namespace troupe::testing;
namespace fs = std::filesystem;

namespace {

struct Folder {
  Folder() {
    std::string pattern = (fs::temp_directory_path() / "troupe-journal-XXXXXX").string();
    REQUIRE(mkdtemp(pattern.data()));
    path = pattern;
  }
  ~Folder() { fs::remove_all(path); }
  std::string journal() const { return path + "/journal"; }
  std::string path;
};

/// What a writer said.
struct Said {
  void kept(JournalKept k) {
    std::lock_guard lock(mutex);
    marks.push_back(k.mark);
    changed.notify_all();
  }
  void failed(JournalFailed f) {
    std::lock_guard lock(mutex);
    failures.push_back(f);
    changed.notify_all();
  }
  bool wait(auto done) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience, done);
  }
  JournalWriter::Options options(const std::string& folder,
                                 std::shared_ptr<FileSystem> files = nullptr) {
    if (!files) files = std::make_shared<DiskFiles>();
    return {{files, folder, heading(), {}, [] { return 3; }},
            [this](JournalKept k) { kept(k); },
            [this](JournalFailed f) { failed(std::move(f)); }};
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> marks;
  std::vector<JournalFailed> failures;
};

Journal journal_in(const std::string& folder) {
  DiskFiles files;
  auto contents = journal_folder::read(files, folder, reader());
  REQUIRE(contents.ok());
  return std::move(contents->journal);
}

mode_t mode_of(const std::string& path) {
  struct stat info {};
  REQUIRE(::stat(path.c_str(), &info) == 0);
  return info.st_mode & 07777;
}

}  // namespace

TEST_CASE("a writer keeps what it says that it has kept, and takes old files away") {
  Folder folder;
  Said said;
  const mode_t before = ::umask(0);
  {
    JournalWriter writer(said.options(folder.journal()));
    writer.begin();
    writer.keep({1, 1, true, true, true, 0, story(1)});
    REQUIRE(said.wait([&] { return !said.marks.empty() && said.marks.back() == 1; }));
    CHECK(journal_in(folder.journal()).requests() == 1);
    writer.keep({1, 2, false, false, false, 0, {tokens(1, 3, 1)}});
    writer.keep({1, 3, false, false, false, 0, story(2)});
    REQUIRE(said.wait([&] { return said.marks.back() == 3; }));
    writer.keep({2, 4, true, false, false, 0, story(1)});
    REQUIRE(said.wait([&] { return said.marks.back() == 4; }));
    CHECK(fs::exists(folder.journal() + "/1.log"));
    writer.keep({2, 5, false, true, true, 0, story(2)});
    REQUIRE(said.wait([&] { return said.marks.back() == 5; }));
    CHECK(!fs::exists(folder.journal() + "/1.log"));
    writer.keep(
        {2, 6, false, false, false, 0, {JournalFinished{sequence_of(1), FinishReason::kStop, 3}}});
  }
  const Journal journal = journal_in(folder.journal());
  CHECK(journal.requests() == 2);
  CHECK(journal.find(sequence_of(1))->finish == FinishReason::kStop);
  CHECK(said.failures.empty());
  // Prompts are nobody else's.
  CHECK(mode_of(folder.journal() + "/2.log") == 0600);
  CHECK(mode_of(folder.journal()) == 0700);
  ::umask(before);
}

TEST_CASE("files that come meanwhile, as with a disk that is mounted late, stay as they are") {
  Folder folder;
  Said said;
  {
    JournalWriter writer(said.options(folder.journal()));
    writer.begin();
    writer.keep({1, 1, true, true, true, 0, story(1)});
    REQUIRE(said.wait([&] { return said.marks.size() == 1; }));
    fs::rename(folder.journal(), folder.path + "/before");
    fs::create_directory(folder.journal());
    for (const char* name : {"1.log", "7.log"})
      fs::copy(folder.path + "/before/1.log", folder.journal() + "/" + name);
    const auto fails = [&](std::uint64_t file, const std::string& why) {
      const std::size_t before = said.failures.size();
      writer.keep({file, file, true, true, true, 0, story(file)});
      REQUIRE(said.wait([&] { return said.failures.size() > before; }));
      CHECK_MESSAGE(said.failures.back().reason.find(why) != std::string::npos,
                    said.failures.back().reason);
      CHECK(!fs::exists(folder.journal() + "/" + std::to_string(file) + ".log"));
    };
    fails(2, "1.log is not there any more");
    fails(3, "1.log was not there when this head began");
    fs::remove(folder.journal() + "/1.log");
    fails(4, "7.log was not there when this head began");
    fs::remove(folder.journal() + "/7.log");
    writer.keep({5, 5, true, true, true, 0, story(3)});
    REQUIRE(said.wait([&] { return said.marks.back() == 5; }));
  }
  CHECK(journal_in(folder.journal()).requests() == 1);
}

TEST_CASE("a disk that is full is told, and the next file begins again") {
  Folder folder;
  Said said;
  // As a full disk does: part of a write, then none.
  auto* const before = std::signal(SIGXFSZ, SIG_IGN);
  rlimit old{};
  REQUIRE(getrlimit(RLIMIT_FSIZE, &old) == 0);
  {
    JournalWriter writer(said.options(folder.journal()));
    writer.begin();
    writer.keep({1, 1, true, true, true, 0, story(1)});
    REQUIRE(said.wait([&] { return said.marks.size() == 1; }));
    rlimit small = old;
    small.rlim_cur = fs::file_size(folder.journal() + "/1.log") + 10;
    REQUIRE(setrlimit(RLIMIT_FSIZE, &small) == 0);
    writer.keep({1, 2, false, false, false, 0, story(2)});
    const bool told = said.wait([&] { return said.failures.size() == 1; });
    REQUIRE(setrlimit(RLIMIT_FSIZE, &old) == 0);
    REQUIRE(told);
    CHECK(said.failures[0].file == 1);
    CHECK(said.failures[0].reason.find("1.log cannot be written") != std::string::npos);
    CHECK(journal_in(folder.journal()).requests() == 1);
    writer.keep({1, 3, false, false, false, 0, story(3)});  // is not taken
    std::vector<JournalRecord> all = story(1);
    for (const JournalRecord& record : story(2)) all.push_back(record);
    writer.keep({2, 4, true, true, true, 0, all});
    REQUIRE(said.wait([&] { return said.marks.back() == 4; }));
  }
  std::signal(SIGXFSZ, before);
  CHECK(journal_in(folder.journal()).requests() == 2);
  CHECK(!fs::exists(folder.journal() + "/1.log"));
}

TEST_CASE("a file that cannot be made is told") {
  Folder folder;
  Said said;
  fs::create_directories(folder.journal() + "/1.log");
  JournalWriter writer(said.options(folder.journal()));
  writer.keep({1, 1, true, true, true, 0, story(1)});
  {
    const std::scoped_lock lock(said.mutex);
    CHECK(said.failures.empty());  // nobody may be there yet to hear of it
  }
  writer.begin();
  REQUIRE(said.wait([&] { return said.failures.size() == 1; }));
  CHECK(said.failures[0].reason.find("1.log cannot be made") != std::string::npos);
}

TEST_CASE("every kind of failure is told, and a file is not synced again behind it") {
  for (const std::string operation : {"make_folder", "sync_folder", "create", "append", "sync"}) {
    CAPTURE(operation);
    Said said;
    const auto files = std::make_shared<ForgetfulFiles>();
    std::vector<std::string> synced;
    bool failed = false;
    files->before = [&](const std::string& asked, const std::string& path) {
      if (asked == "sync") synced.push_back(path);
      if (failed || asked != operation) return Status();
      failed = true;
      return Status(unavailable(path + " cannot be " + operation + "."));
    };
    {
      JournalWriter writer(said.options(kFolder, files));
      writer.begin();
      writer.keep({1, 1, true, true, true, 0, story(1)});
      REQUIRE(said.wait([&] { return said.failures.size() == 1; }));
      CHECK(said.failures[0].reason.find(operation) != std::string::npos);
      writer.keep({2, 2, true, true, true, 0, story(1)});
      REQUIRE(said.wait([&] { return said.marks.size() == 1; }));
    }
    std::erase(synced, kFolder + "/2.log");
    CHECK(synced.size() == (operation == "sync" ? 1 : 0));
    CHECK(files->contents().size() == 1);  // nothing of what failed fills the disk
    CHECK(read(*files->after_power_cut(1))->journal.requests() == 1);
  }
}

TEST_CASE("a record that cannot be written down is not said to be kept") {
  Said said;
  const auto files = std::make_shared<ForgetfulFiles>();
  JournalWriter writer(said.options(kFolder, files));
  writer.begin();
  JournalAccepted strange = accepted(1);
  strange.accepted_unix_ms = -1;
  writer.keep({1, 1, true, true, true, 0, {strange}});
  REQUIRE(said.wait([&] { return said.failures.size() == 1; }));
  CHECK(said.marks.empty());
  CHECK(said.failures[0].reason.find("a time") != std::string::npos);
}

TEST_CASE("a disk that hangs holds nobody up but those who wait for it") {
  Said said;
  const auto files = std::make_shared<ForgetfulFiles>();
  std::mutex hangs;
  files->before = [&](const std::string& asked, const std::string&) {
    if (asked == "sync") const std::scoped_lock wait(hangs);
    return Status();
  };
  JournalWriter writer(said.options(kFolder, files));
  writer.begin();
  {
    const std::scoped_lock hang(hangs);
    writer.keep({1, 1, true, true, true, 0, story(1)});
    for (std::uint64_t i = 2; i < 100; ++i)
      writer.keep({1, i, false, false, false, 0, {tokens(1, 3, 1)}});
    writer.keep({1, 100, false, false, false, 0, story(2)});
    const std::scoped_lock lock(said.mutex);
    CHECK(said.marks.empty());
  }
  REQUIRE(said.wait([&] { return !said.marks.empty() && said.marks.back() == 100; }));
  CHECK(said.marks.size() <= 3);  // what came meanwhile goes together
  CHECK(read(*files)->journal.requests() == 2);
}
