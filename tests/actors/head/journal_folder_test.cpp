#include "actors/head/journal_folder.h"

#include <doctest/doctest.h>

#include <stdlib.h>

#include <chrono>
#include <filesystem>
#include <set>
#include <sstream>

#include "actors/head/head_crashes.h"
#include "runtime/xxh3.h"
#include "tests/actors/head/forgetful_files.h"
#include "tests/actors/head/journal_samples.h"
#include "tests/promises.h"
#include "transport/journal_records.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::string error_of(const Journal& journal, std::uint64_t request) {
  const auto id = find(journal, request);
  if (!id) return "nobody finds it";
  const auto& error = journal.request(*id)->error;
  return error ? error->message : "";
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace

TEST_CASE("what was written is read") {
  ForgetfulFiles files;
  CHECK(read(files)->next_file == 1);
  files.put(kFolder + "/3.log", old_file_of(story(1)));
  files.put(kFolder + "/12.log", file_of(story(2)));
  const auto contents = read(files);
  REQUIRE(contents.ok());
  CHECK(contents->next_file == 13);
  CHECK(*journal_folder::next_file(files, kFolder) == 13);
  CHECK(contents->notes.empty());
  CHECK(contents->damaged.empty());
  CHECK(contents->journal.requests() == 2);
  CHECK(wrong(contents->journal).empty());
  const Journal::Sequence* sequence = contents->journal.find(sequence_of(2));
  REQUIRE(sequence);
  CHECK(sequence->output.size() == 3);
  CHECK(sequence->logprobs->at(1) == token_of(2, 1));
  const PreparedRequest& now = *sequence->prepared;
  const auto told = prepared(2);
  CHECK(now.prompt == told->prompt);
  CHECK(now.sampling == told->sampling);
  CHECK(now.stop == told->stop);
  CHECK(now.stop_tokens == told->stop_tokens);
  CHECK(now.keep_special == told->keep_special);
  CHECK(now.include_stop_str_in_output);
  CHECK(!now.skip_special_tokens);
  CHECK(now.timeout == told->timeout);
  CHECK(now.n == 2);
  CHECK(!now.streams);
  CHECK(*now.seed == 12);
  CHECK(now.name->key == "key 2");
  CHECK(now.name->body == Digest{7, 2});
  CHECK(now.name->owner == ~0ull);
  CHECK(now.name->form == "{\"chat\":true}");
}

TEST_CASE("requests of another model, cluster or numerics end with an error that says which") {
  std::vector<JournalRecord> both = story(1);
  for (const JournalRecord& record : finished_story(2, 3)) both.push_back(record);
  journal_format::Heading of_file = heading();
  journal_folder::Reader as = reader();
  std::string running, finished;
  SUBCASE("the same") {}
  SUBCASE("numerics of a newer version") {
    of_file.numerics = "better";
    running = "that this version knows instead of better";
  }
  SUBCASE("a file that does not know its cluster, as a standby's before it met the head") {
    of_file.cluster.clear();
  }
  SUBCASE("another model") {
    of_file.model = "other";
    running = finished = "another model";
  }
  SUBCASE("another cluster") {
    of_file.cluster = "other";
    running = finished = "another cluster";
  }
  SUBCASE("other numerics: answers stay, the tokenizer is the same") {
    of_file.numerics = "bf16";
    as.numerics = "reference";
    running = "reference instead of bf16";
  }
  SUBCASE("other numerics than those of a head that wrote none down") {
    as.last_numerics = "bf16";
    as.numerics = "reference";
    running = "reference instead of bf16";
  }
  ForgetfulFiles files;
  files.put(kFolder + "/1.log", file_of(both, of_file));
  const auto contents = read(files, as);
  REQUIRE(contents.ok());
  CHECK(contents->damaged.empty());
  // Of the two one had not had its answer.
  CHECK(contents->notes.empty() == running.empty());
  if (!running.empty()) CHECK(has(contents->notes.at(0), "1 request of an earlier life"));
  CHECK(has(error_of(contents->journal, 1), running));
  CHECK(error_of(contents->journal, 1).empty() == running.empty());
  CHECK(has(error_of(contents->journal, 2), finished));
  CHECK(error_of(contents->journal, 2).empty() == finished.empty());
}

TEST_CASE("answers with a grammar go on under the masks that they began with alone") {
  struct Case {
    const char* grammar;
    std::uint32_t before;
    std::optional<std::uint32_t> now;
    bool goes_on;
  };
  constexpr const char* kGrammar = "root ::= [a-z]*";
  for (const auto& [grammar, before, now, goes_on] :
       std::vector<Case>{{kGrammar, 2, 2, true},
                         {kGrammar, 2, 3, false},
                         {kGrammar, 0, 3, false},  // of a version that wrote none down
                         {kGrammar, 2, std::nullopt, true},
                         {"", 2, 3, true}}) {
    for (const bool second_file : {false, true}) {
      CAPTURE(grammar);
      CAPTURE(before);
      auto rules = std::make_shared<TokenRules>();
      rules->grammar = grammar;
      auto ruled = std::make_shared<PreparedRequest>(*prepared(1));
      ruled->sampling.rules = rules;
      std::vector<JournalRecord> records = story(1);
      std::get<JournalAccepted>(records.front()).prepared = ruled;
      journal_format::Heading of_file = heading();
      of_file.masks = before;
      ForgetfulFiles files;
      files.put(kFolder + "/1.log", file_of(records, of_file));
      of_file.term = 8;
      if (now) of_file.masks = *now;
      if (second_file) files.put(kFolder + "/2.log", file_of(finished_story(2, 3), of_file));
      journal_folder::Reader as = reader();
      as.masks = now;
      const auto contents = read(files, as);
      REQUIRE(contents.ok());
      const std::string error = error_of(contents->journal, 1);
      CHECK(error.empty() == goes_on);
      if (!goes_on) CHECK(has(error, "whose grammars allow other tokens"));
    }
  }
}

TEST_CASE("files of version 1 know their model alone, and some the numerics behind it") {
  ForgetfulFiles files;
  files.put(kFolder + "/1.log", old_file_of(story(1), "model-bf16"));
  CHECK(error_of(read(files)->journal, 1).empty());
  files.put(kFolder + "/1.log", old_file_of(story(1), "other"));
  CHECK(has(error_of(read(files)->journal, 1), "another model"));
}

TEST_CASE("requests that go on hold the head to their numerics") {
  ForgetfulFiles files;
  journal_format::Heading with = heading();
  with.numerics = "bf16";
  files.put(kFolder + "/1.log", file_of(story(1), with));
  CHECK(read(files)->numerics == "bf16");
  files.put(kFolder + "/1.log", file_of(finished_story(1, 3), with));
  CHECK(read(files)->numerics.empty());
}

TEST_CASE("a file may learn its numerics after its beginning") {
  auto disk_files = std::make_shared<ForgetfulFiles>();
  JournalDisk disk({disk_files, kFolder, heading(), {}, [] { return 3; }});
  REQUIRE(disk.write({KeepRecords{1, 1, true, true, true, 0, story(1)}}).ok());
  CHECK(read(*disk_files)->numerics.empty());
  disk.learn_numerics("bf16");
  disk.learn_numerics("bf16");
  REQUIRE(disk.write({KeepRecords{1, 2, false, true, false, 0, {tokens(1, 3, 1)}}}).ok());
  const auto contents = read(*disk_files);
  CHECK(contents->numerics == "bf16");
  CHECK(contents->notes.empty());
  CHECK(contents->journal.find(sequence_of(1))->output.size() == 4);
}

TEST_CASE("a newer version's file is not touched, and the head does not start") {
  ForgetfulFiles files;
  std::string newer = *journal_format::write(heading());
  newer.replace(newer.find('2'), 1, "3");
  files.put(kFolder + "/1.log", newer);
  CHECK(read(files).ok());  // a changed byte makes no version
  const std::string line = "troupe-journal-3 model=model new=words";
  std::ostringstream check;
  check << std::hex << xxh3_64(line.data(), line.size());
  files.put(kFolder + "/1.log", line + " check=" + check.str() + "\nwhatever");
  const auto refused = read(files);
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kCorrupt);
  CHECK(has(refused.error().message, "newer version of Troupe"));
  CHECK(files.contents().size() == 1);
}

TEST_CASE("records of kinds that are not known yet") {
  auto unknown = *transport::encode(JournalForgotten{1});
  unknown[16] = std::byte{99};  // of the union
  CHECK(transport::decode_record(unknown).error().code == ErrorCode::kRefused);
  using journal_format::Kind;
  const std::string story_of_one = file_of(story(1));
  const auto with = [&](Kind kind, const std::vector<std::byte>& content) {
    std::vector<std::byte> frame;
    journal_format::put_frame(frame, {heading().file, 4, kind, 0, 0}, content);
    ForgetfulFiles files;
    const std::string last(reinterpret_cast<const char*>(frame.data()), frame.size());
    files.put(kFolder + "/1.log", story_of_one + last);
    return read(files);
  };
  const auto hint = with(Kind::kHint, unknown);
  REQUIRE(hint.ok());
  CHECK(wrong(hint->journal) == "");
  CHECK(hint->journal.find(sequence_of(1))->output.size() == 3);
  CHECK(hint->damaged.empty());
  REQUIRE(hint->notes.size() == 1);
  CHECK(has(hint->notes[0], "A newer version of Troupe wrote"));
  CHECK(has(hint->notes[0], "a kind (99)"));
  for (const auto& [kind, content] :
       {std::pair(Kind::kRecord, unknown), std::pair(Kind(7), std::vector<std::byte>(8))}) {
    const auto refused = with(kind, content);
    REQUIRE(!refused.ok());
    CHECK(refused.error().code == ErrorCode::kCorrupt);
    CHECK(has(refused.error().message, "newer version of Troupe"));
    CHECK(has(refused.error().message, "move the folder away"));
  }
  // One that says nothing is nobody's.
  unknown[16] = std::byte{0};
  CHECK(with(Kind::kRecord, unknown)->damaged.size() == 1);
}

TEST_CASE("a name behind which there is none is no file of a journal") {
  ForgetfulFiles files;
  files.put(kFolder + "/3.log", file_of(story(1)));
  files.put(kFolder + "/18446744073709551615.log", file_of(story(2)));
  CHECK(*journal_folder::next_file(files, kFolder) == 4);
  // The number behind this one would not be found again.
  files.put(kFolder + "/4611686018427387903.log", "");
  const auto next = journal_folder::next_file(files, kFolder);
  REQUIRE(!next.ok());
  CHECK(has(next.error().message, "4611686018427387903.log: move it away"));
  const auto contents = journal_folder::read(files, kFolder, {});
  REQUIRE(!contents.ok());
  CHECK(contents.error().message == next.error().message);
}

TEST_CASE("a link to what is not there is no folder without files") {
  DiskFiles disk;
  std::string pattern = (std::filesystem::temp_directory_path() / "troupe-link-XXXXXX").string();
  REQUIRE(mkdtemp(pattern.data()));
  CHECK(*journal_folder::next_file(disk, pattern + "/journal") == 1);
  std::filesystem::create_directory_symlink(pattern + "/not-mounted", pattern + "/journal");
  const auto contents = journal_folder::read(disk, pattern + "/journal", {});
  REQUIRE(!contents.ok());
  CHECK(has(contents.error().message, "cannot be read"));
  std::filesystem::create_directory(pattern + "/not-mounted");
  CHECK(journal_folder::read(disk, pattern + "/journal", {}).ok());
  std::filesystem::remove_all(pattern);
}

TEST_CASE("a head that is to keep no journal may have none where requests go on") {
  ForgetfulFiles files;
  CHECK(journal_folder::check_all_over(files, kFolder).ok());
  files.put(kFolder + "/1.log", file_of(finished_story(1, 3)));
  CHECK(journal_folder::check_all_over(files, kFolder).ok());
  journal_format::Heading other = heading();
  other.model = "other";
  files.put(kFolder + "/2.log", file_of(story(2), other));
  const Status refused = journal_folder::check_all_over(files, kFolder);
  REQUIRE(!refused.ok());
  CHECK(has(refused.error().message, "1 request that"));
  CHECK(has(refused.error().message, kFolder));
  // One that the next head would give up is over.
  files.put(head_crashes_path(kFolder), "8 11 cmpl-2\n9 11 cmpl-2\n");
  CHECK(!journal_folder::check_all_over(files, kFolder).ok());
  files.put(head_crashes_path(kFolder), "8 11 cmpl-2\n9 11 cmpl-2\n10 11 cmpl-2\n");
  CHECK(journal_folder::check_all_over(files, kFolder).ok());
}

TEST_CASE("a file that cannot be read is no end of a file") {
  ForgetfulFiles files;
  files.put(kFolder + "/1.log", file_of(story(1)));
  std::uint64_t reads = 0;
  for (const std::string operation : {"list", "open", "read"}) {
    CAPTURE(operation);
    files.before = [&](const std::string& asked, const std::string& path) {
      return asked == operation ? Status(unavailable(path + " fails: it is broken.")) : Status();
    };
    const auto failed = read(files);
    REQUIRE(!failed.ok());
    CHECK(failed.error().code == ErrorCode::kUnavailable);
    CHECK(has(failed.error().message, kFolder));
    CHECK(has(failed.error().message, "it is broken"));
    CHECK(has(failed.error().message, "move the folder"));
    ++reads;
  }
  CHECK(reads == 3);
}

TEST_CASE("a file of an earlier life behind a later one is left out, and kept aside") {
  ForgetfulFiles files;
  journal_format::Heading late = heading(), early = heading();
  late.term = 9;
  files.put(kFolder + "/1.log", file_of(story(1), late));
  files.put(kFolder + "/2.log", file_of(story(2), early));
  const auto contents = read(files);
  CHECK(contents->journal.requests() == 1);
  CHECK(contents->damaged.contains(2));
  REQUIRE(contents->notes.size() == 1);
  CHECK(has(contents->notes[0], "earlier life"));
}

TEST_CASE("answers are as old as the newest file with them says, wherever clocks stood") {
  constexpr std::int64_t kMinute = 60'000, kNoon = 30'000'000 * kMinute;
  const auto ended = [](std::uint64_t request, std::int64_t at) {
    std::vector<JournalRecord> records = finished_story(request, 3);
    records.back() = JournalEnded{request, at, std::nullopt};
    return records;
  };
  const auto file = [&](std::uint64_t term, const std::vector<std::vector<JournalRecord>>& told) {
    journal_format::Heading by = heading();
    by.term = term;
    std::vector<JournalRecord> all;
    for (const auto& records : told) all.insert(all.end(), records.begin(), records.end());
    return file_of(all, by);
  };
  for (const std::int64_t jump : {0 * kMinute, 120 * kMinute, -120 * kMinute, -kNoon}) {
    CAPTURE(jump);
    ForgetfulFiles files;
    files.put(kFolder + "/1.log", file(7, {ended(1, kNoon), ended(2, kNoon - 40 * kMinute),
                                           ended(3, kNoon - 10 * kMinute)}));
    // The next head told one of them again, and died; so did the one after it.
    files.put(kFolder + "/2.log", file(8, {ended(1, kNoon + jump)}));
    files.put(kFolder + "/3.log",
              file(9, {story(4), ended(5, kNoon), ended(3, kNoon - 5 * kMinute)}));
    const auto contents = read(files);
    REQUIRE(contents.ok());
    const auto minutes = [&](std::uint64_t request) {
      return contents->journal.age_ms(*contents->journal.request(request)) / kMinute;
    };
    CHECK(minutes(1) == 0);
    CHECK(minutes(2) == 40);
    CHECK(minutes(3) == 5);
    CHECK(minutes(5) == 0);
  }
}

TEST_CASE("what a head itself had to end is new, whatever its files say") {
  ForgetfulFiles files;
  journal_format::Heading other = heading();
  other.numerics = "bf16";
  files.put(kFolder + "/1.log", file_of(story(1), other));
  other.numerics = "reference";
  other.term = 8;
  auto records = finished_story(2, 3);
  records.back() = JournalEnded{2, std::int64_t{1} << 40, std::nullopt};
  files.put(kFolder + "/2.log", file_of(records, other));
  const auto contents = read(files);
  REQUIRE(contents->journal.request(1)->error);
  CHECK(contents->journal.age_ms(*contents->journal.request(1)) == 0);
}

TEST_CASE("damaged files are kept aside, a few") {
  ForgetfulFiles files;
  std::string bytes = file_of(story(1));
  bytes[frames_of(bytes)[2] + 50] ^= 1;
  for (int i = 1; i <= 6; ++i) files.put(kFolder + "/" + std::to_string(i) + ".log", bytes);
  const auto contents = read(files);
  CHECK(contents->damaged.size() == 6);
  REQUIRE(!contents->notes.empty());
  CHECK(has(contents->notes[0], "kept as " + kFolder + "/1.log.bad"));
  const std::set<std::uint64_t> all = {1, 2, 3, 4, 5};
  REQUIRE(journal_folder::remove_before(files, kFolder, 6, all, contents->damaged).ok());
  std::vector<std::string> names;
  for (const auto& [name, text] : files.contents()) names.push_back(name);
  CHECK(names == std::vector<std::string>{kFolder + "/3.log.bad", kFolder + "/4.log.bad",
                                          kFolder + "/5.log.bad", kFolder + "/6.log"});
  CHECK(files.get(kFolder + "/3.log.bad") == bytes);
}

TEST_CASE("numbers of requests that are forgotten are not given again") {
  auto files = std::make_shared<ForgetfulFiles>();
  JournalDisk disk({files, kFolder, heading(), {}, [] { return 3; }});
  std::vector<JournalRecord> records = story(5);
  records.push_back(JournalForgotten{5});
  REQUIRE(disk.write({KeepRecords{1, 1, true, true, true, 0, records}}).ok());
  REQUIRE(disk.write({KeepRecords{2, 2, true, true, true, 0, {}}}).ok());
  CHECK(files->contents().size() == 1);
  const auto contents = read(*files);
  CHECK(contents->journal.requests() == 0);
  CHECK(contents->journal.next_request() == 6);
  CHECK(contents->journal.next_sequence() == sequence_of(5).value + 2);
}

TEST_CASE("a hundred thousand finished requests are read within two seconds") {
  ForgetfulFiles files;
  std::vector<JournalRecord> all;
  for (std::uint64_t request = 1; request <= 100'000; ++request)
    for (JournalRecord& record : finished_story(request, 4)) all.push_back(std::move(record));
  files.put(kFolder + "/1.log", file_of(all));
  const auto begin = std::chrono::steady_clock::now();
  const auto contents = read(files);
  const auto took = std::chrono::steady_clock::now() - begin;
  REQUIRE(contents.ok());
  CHECK(contents->journal.requests() == 100'000);
  promised("100,000 finished requests", took, std::chrono::seconds(2));
}
