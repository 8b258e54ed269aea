#include "actors/head/journal_folder.h"

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <condition_variable>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/head/journal_writer.h"
#include "tests/patience.h"

using namespace troupe;
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

std::shared_ptr<const PreparedRequest> prepared(std::size_t prompt = 3) {
  PreparedRequest request;
  request.prompt.assign(prompt, 5);
  request.n = 2;
  request.max_tokens = 100;
  request.sampling.seed = 11;
  request.sampling.top_logprobs = 1;
  request.stop = {"\n\n", "Gr\xC3\xBC\xC3\x9F"};
  request.stop_tokens = {1, 2};
  request.keep_special = {3};
  request.include_stop_str_in_output = true;
  request.skip_special_tokens = false;
  request.timeout = std::chrono::milliseconds(61'500);
  request.streams = false;
  request.name = std::make_shared<const RequestName>(
      RequestName{"id", 1, 2, ~0ull, "key", {7, 8}, "{\"chat\":true}"});
  return std::make_shared<const PreparedRequest>(std::move(request));
}

std::vector<JournalRecord> story(std::uint64_t request) {
  const SequenceId first{2 * request};
  return {JournalAccepted{request, first, 1234, prepared()}, JournalSubmitted{first, 1},
          JournalTokens{first, 0, {{7, -0.5f, {{7, -0.5f}}}, {8, -1.5f, {{9, -0.25f}}}}},
          JournalTokens{first, 2, {{9, -2.0f, {{9, -2.0f}}}}}};
}

void write_file(const std::string& path, const std::vector<JournalRecord>& records,
                std::string_view model = "model") {
  std::vector<std::byte> bytes;
  for (const JournalRecord& record : records) REQUIRE(journal_folder::append(bytes, record).ok());
  fs::create_directories(fs::path(path).parent_path());
  std::ofstream file(path, std::ios::binary);
  file << journal_folder::first_line(model);
  file.write(reinterpret_cast<const char*>(bytes.data()),
             static_cast<std::streamsize>(bytes.size()));
}

std::string bytes_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

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
  JournalWriter::Options options(const std::string& folder) {
    return {folder, "model", [this](JournalKept k) { kept(k); },
            [this](JournalFailed f) { failed(std::move(f)); }};
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::uint64_t> marks;
  std::vector<JournalFailed> failures;
};

}  // namespace

TEST_CASE("what was written is read") {
  Folder folder;
  CHECK(journal_folder::read(folder.journal(), "model", 0)->next_file == 1);
  write_file(folder.journal() + "/3.log", story(1));
  write_file(folder.journal() + "/12.log", story(2));
  const auto contents = journal_folder::read(folder.journal(), "model", 0);
  REQUIRE(contents.ok());
  CHECK(contents->next_file == 13);
  CHECK(contents->notes.empty());
  CHECK(contents->journal.requests() == 2);
  const Journal::Sequence* sequence = contents->journal.find(SequenceId{2});
  REQUIRE(sequence);
  CHECK(sequence->output == std::vector<TokenId>{7, 8, 9});
  CHECK(sequence->logprobs->at(1) == TokenOutput{8, -1.5f, {{9, -0.25f}}});
  const PreparedRequest& read = *sequence->prepared;
  const auto told = prepared();
  const PreparedRequest& wrote = *told;
  CHECK(read.prompt == wrote.prompt);
  CHECK(read.sampling == wrote.sampling);
  CHECK(read.stop == wrote.stop);
  CHECK(read.stop_tokens == wrote.stop_tokens);
  CHECK(read.keep_special == wrote.keep_special);
  CHECK(read.include_stop_str_in_output);
  CHECK(!read.skip_special_tokens);
  CHECK(read.timeout == wrote.timeout);
  CHECK(read.n == 2);
  CHECK(!read.streams);
  CHECK(*read.seed == 11);
  CHECK(read.name->key == "key");
  CHECK(read.name->body == Digest{7, 8});
  CHECK(read.name->owner == ~0ull);
  CHECK(read.name->form == "{\"chat\":true}");
}

TEST_CASE("a file that was cut off anywhere gives what is before the cut") {
  Folder folder;
  const std::string path = folder.journal() + "/1.log";
  write_file(path, story(1));
  const std::string whole = bytes_of(path);
  std::size_t tokens_before = 0;
  for (std::size_t size = 0; size <= whole.size(); ++size) {
    CAPTURE(size);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << whole.substr(0, size);
    const auto contents = journal_folder::read(folder.journal(), "model", 0);
    REQUIRE(contents.ok());
    const auto* sequence = contents->journal.find(SequenceId{2});
    const std::size_t tokens = sequence ? sequence->output.size() : 0;
    CHECK(tokens >= tokens_before);
    tokens_before = tokens;
  }
  CHECK(tokens_before == 3);
}

TEST_CASE("a flipped bit costs what is behind it, and is told") {
  Folder folder;
  const std::string path = folder.journal() + "/1.log";
  write_file(path, story(1));
  const std::string whole = bytes_of(path);
  const std::size_t line = journal_folder::first_line("model").size();
  for (std::size_t at = line; at < whole.size(); at += 7) {
    CAPTURE(at);
    std::string bytes = whole;
    bytes[at] = static_cast<char>(bytes[at] ^ 0x10);
    std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
    const auto contents = journal_folder::read(folder.journal(), "model", 0);
    REQUIRE(contents.ok());
    CHECK(contents->notes.size() == 1);
  }
}

TEST_CASE("requests of another model are over, and another version's file is not touched") {
  Folder folder;
  write_file(folder.journal() + "/1.log", story(1), "other");
  const auto contents = journal_folder::read(folder.journal(), "model", 4321);
  REQUIRE(contents.ok());
  REQUIRE(contents->journal.request(1));
  CHECK(contents->journal.request(1)->ended);
  CHECK(contents->journal.request(1)->ended_unix_ms == 4321);
  CHECK(contents->journal.request(1)->error->message.find("another model") != std::string::npos);
  // As it is where the last life had other numerics.
  write_file(folder.journal() + "/1.log", story(1));
  CHECK(!journal_folder::read(folder.journal(), "model", 1)->journal.request(1)->ended);
  CHECK(journal_folder::read(folder.journal(), "model", 1, true)->journal.request(1)->ended);
  // Earlier versions wrote them behind the model.
  write_file(folder.journal() + "/1.log", story(1), "model-bf16");
  CHECK(!journal_folder::read(folder.journal(), "model", 1)->journal.request(1)->ended);
  // An answer would be read by another tokenizer.
  std::vector<JournalRecord> over = story(1);
  over.push_back(JournalFinished{SequenceId{2}, FinishReason::kLength, 3});
  over.push_back(JournalFinished{SequenceId{3}, FinishReason::kLength, 0});
  over.push_back(JournalEnded{1, 5, std::nullopt});
  write_file(folder.journal() + "/1.log", over);
  CHECK(journal_folder::read(folder.journal(), "model", 1)->journal.request(1)->ended);
  write_file(folder.journal() + "/1.log", over, "other");
  CHECK(journal_folder::read(folder.journal(), "model", 1)->journal.requests() == 0);
  std::ofstream(folder.journal() + "/2.log") << "troupe-journal-9 model\nwhatever";
  const auto refused = journal_folder::read(folder.journal(), "model", 0);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kCorrupt);
  CHECK(refused.error().message.find("another version") != std::string::npos);
}

TEST_CASE("a writer keeps what it says that it has kept, and takes old files away") {
  Folder folder;
  Said said;
  {
    JournalWriter writer(said.options(folder.journal()));
    writer.begin();
    writer.keep({1, 1, true, true, true, 0, story(1)});
    REQUIRE(said.wait([&] { return !said.marks.empty() && said.marks.back() == 1; }));
    CHECK(journal_folder::read(folder.journal(), "model", 0)->journal.requests() == 1);
    writer.keep(
        {1, 2, false, false, false, 0, {JournalTokens{SequenceId{2}, 3, {{4, -1, {{4, -1}}}}}}});
    writer.keep({1, 3, false, false, false, 0, story(2)});
    REQUIRE(said.wait([&] { return said.marks.back() == 3; }));
    writer.keep({2, 4, true, false, false, 0, story(1)});
    REQUIRE(said.wait([&] { return said.marks.back() == 4; }));
    CHECK(fs::exists(folder.journal() + "/1.log"));
    writer.keep({2, 5, false, true, true, 0, story(2)});
    REQUIRE(said.wait([&] { return said.marks.back() == 5; }));
    CHECK(!fs::exists(folder.journal() + "/1.log"));
    writer.keep(
        {2, 6, false, false, false, 0, {JournalFinished{SequenceId{2}, FinishReason::kStop, 3}}});
  }
  const auto contents = journal_folder::read(folder.journal(), "model", 0);
  CHECK(contents->journal.requests() == 2);
  CHECK(contents->journal.find(SequenceId{2})->finish == FinishReason::kStop);
  CHECK(said.failures.empty());
  CHECK((fs::status(folder.journal() + "/2.log").permissions() & fs::perms::others_read) ==
        fs::perms::none);
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
    const auto cut = journal_folder::read(folder.journal(), "model", 0);
    CHECK(cut->journal.requests() == 1);
    CHECK(cut->notes.size() == 1);
    writer.keep({1, 3, false, false, false, 0, story(3)});  // is not taken
    std::vector<JournalRecord> all = story(1);
    for (const JournalRecord& record : story(2)) all.push_back(record);
    writer.keep({2, 4, true, true, true, 0, all});
    REQUIRE(said.wait([&] { return said.marks.back() == 4; }));
  }
  std::signal(SIGXFSZ, before);
  const auto contents = journal_folder::read(folder.journal(), "model", 0);
  CHECK(contents->journal.requests() == 2);
  CHECK(contents->notes.empty());
  CHECK(contents->next_file == 3);
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
