#include "actors/head/head_crashes.h"

#include <doctest/doctest.h>

#include <memory>
#include <utility>

#include "actors/head/open_journal.h"
#include "runtime/in_hand.h"
#include "tests/actors/head/forgetful_files.h"
#include "tests/actors/head/journal_samples.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

std::vector<HeadCrash> crashes_in(const std::string& text) {
  ForgetfulFiles files;
  files.put(head_crashes_path(kFolder), text);
  return *read_head_crashes(files, kFolder);
}

/// Two requests that go on, and one that is over.
Journal journal() {
  Journal made;
  for (const auto& records : {story(1), story(2), finished_story(3, 4)})
    for (const JournalRecord& record : records) made.append(record);
  return made;
}

}  // namespace

TEST_CASE("what heads wrote down of their crashes is read, whatever a power cut left of it") {
  ForgetfulFiles files;
  CHECK(read_head_crashes(files, kFolder)->empty());
  CHECK(crashes_in("").empty());
  const auto crashes = crashes_in("7 11 cmpl-1\n8 6 -\nrubbish\n9 11 a b\n10 4 cmpl-2\n11 11 cmp");
  REQUIRE(crashes.size() == 3);
  CHECK(crashes[0].term == 7);
  CHECK(crashes[0].signal == 11);
  CHECK(crashes[0].request == "cmpl-1");
  CHECK(crashes[1].request.empty());
  CHECK(crashes[2].request == "cmpl-2");
}

TEST_CASE("who crashes three heads in a row is given up, and nobody else") {
  Journal made = journal();
  CHECK(blame({{7, 11, "cmpl-1"}, {8, 11, "cmpl-2"}, {9, 6, ""}, {10, 6, "gone"}}, made)
            .size() == 4);
  CHECK(made.request(1)->crashes == 1);
  blame({{7, 11, "cmpl-1"}, {11, 11, "cmpl-1"}}, made);  // one of them is known
  CHECK(made.request(1)->crashes == 2);
  CHECK(!made.request(1)->ended);
  SUBCASE("again") {
    const auto notes = blame({{12, 11, "cmpl-1"}}, made);
    REQUIRE(notes.size() == 1);
    CHECK(notes[0].find("given up") != std::string::npos);
    REQUIRE(made.request(1)->error);
    CHECK(made.request(1)->error->code == ErrorCode::kInternal);
    CHECK(made.request(1)->error->message.find("3 times in a row") != std::string::npos);
    CHECK(made.request(1)->error->message.find("SIGSEGV") != std::string::npos);
    CHECK(made.request(1)->ended_unix_ms == made.last_end_unix_ms());
  }
  SUBCASE("with a token in between") {
    made.append(tokens(1, 3, 1));
    blame({{12, 11, "cmpl-1"}}, made);
    CHECK(made.request(1)->crashes == 1);
    CHECK(!made.request(1)->ended);
  }
  CHECK(!made.request(2)->ended);
}

TEST_CASE("an answer that crashes heads when it is told is told no more") {
  Journal made = journal();
  blame({{7, 11, "cmpl-3"}, {8, 11, "cmpl-3"}}, made);
  CHECK(!made.request(3)->error);
  blame({{9, 11, "cmpl-3"}}, made);
  CHECK(made.request(3)->error);
}

TEST_CASE("an answer that heads told well in between is told on") {
  Journal made = journal();
  made.append(JournalCrashes{2, 2, 3});  // one that goes on: no token has come since
  for (std::uint64_t term = 7; term < 20; term += 3) {
    blame({{term, 11, "cmpl-3"}, {term + 1, 11, "cmpl-3"}}, made);
    CHECK(made.request(3)->crashes == 2);
    // The journal is told again by each head, and read by the next.
    Journal next;
    Journal::Place place;
    std::vector<JournalRecord> told;
    CHECK(made.tell(place, ~0ull, ~std::size_t{0}, told));
    for (const JournalRecord& record : told) next.append(record);
    CHECK(next.request(3)->crashes == 2);
    made = std::move(next);
    blame({{term + 1, 11, "cmpl-3"}, {term + 2, 6, "cmpl-1"}}, made);
    CHECK(made.request(3)->crashes == 0);
  }
  CHECK(!made.request(3)->error);
  CHECK(made.request(2)->crashes == 2);
}

TEST_CASE("what comes to its end has not crashed heads") {
  Journal made;
  for (const JournalRecord& record : finished_story(3, 4)) {
    if (std::holds_alternative<JournalEnded>(record)) blame({{7, 11, "cmpl-3"}}, made);
    made.append(record);
  }
  CHECK(made.request(3)->crashes == 0);
  blame({{7, 11, "cmpl-3"}}, made);
  CHECK(made.request(3)->crashes == 0);
}

TEST_CASE("what failed already is not given up as well") {
  Journal made = journal();
  made.append(JournalEnded{1, 5, deadline_exceeded("It took too long.")});
  blame({{7, 11, "cmpl-1"}, {8, 11, "cmpl-1"}, {9, 11, "cmpl-1"}}, made);
  CHECK(made.request(1)->error->code == ErrorCode::kDeadlineExceeded);
  CHECK(!made.request(1)->given_up());
}

namespace {

/// One of two machines that rule in turns, while the other one follows.
struct Machine {
  std::shared_ptr<ForgetfulFiles> files = std::make_shared<ForgetfulFiles>();
  std::uint64_t next_file = 1;

  /// It begins as a head: what it has then.
  Journal begin(std::uint64_t term) {
    KnownState known;
    auto open = open_journal(
        {files, kFolder, "model", "cluster", {}, Incarnation{term}, [] { return 3; }}, known);
    REQUIRE(open.ok());
    keep(open->disk, open->journal, open->first_file);
    return std::move(open->journal);
  }
  /// It has all that a head has.
  void follow(const Journal& head) {
    keep({files, kFolder, {.model = "model"}, {}, [] { return 3; }, true}, head, next_file);
  }
  void crash(std::uint64_t term) {
    files->put(head_crashes_path(kFolder), left() + std::to_string(term) + " 11 cmpl-1\n");
  }
  std::string left() const {
    const auto all = files->contents();
    const auto found = all.find(head_crashes_path(kFolder));
    return found == all.end() ? "" : found->second;
  }

 private:
  void keep(JournalDisk::Options options, const Journal& journal, std::uint64_t file) {
    KeepRecords all{file, 1, true, true, true, 0, {}};
    Journal::Place place;
    REQUIRE(journal.tell(place, ~0ull, ~std::size_t{0}, all.records));
    JournalDisk disk(std::move(options));
    REQUIRE(disk.write({all}).ok());
    next_file = file + 1;
  }
};

}  // namespace

TEST_CASE("who crashes a head and its standby in turns is given up, too") {
  Machine machines[2];
  Journal has = journal();
  machines[0].follow(has);
  std::uint64_t term = 10;
  for (; !has.request(1)->ended; ++term) {
    REQUIRE(term <= 14);
    Machine& head = machines[term % 2];
    has = head.begin(term);
    CHECK(head.left() == "");
    machines[1 - term % 2].follow(has);
    if (!has.request(1)->ended) head.crash(term);
  }
  CHECK(term == 15);
  CHECK(has.request(1)->given_up());
  CHECK(!has.request(2)->ended);
}

TEST_CASE("crashes of a machine that has followed another head since count once") {
  Machine machine;
  machine.crash(7);
  machine.crash(8);
  machine.crash(9);
  Journal has = journal();
  SUBCASE("the request goes on") {}
  SUBCASE("the other head ended it well") {
    for (const JournalRecord& record : finished_story(1, 5))
      if (has.fits(record)) has.append(record);
    REQUIRE(has.request(1)->ended);
  }
  machine.follow(has);
  machine.follow(has);
  CHECK(machine.left() == "9 11 cmpl-1\n");
  has = machine.begin(12);
  CHECK(has.request(1)->crashes == 1);
  CHECK(!has.request(1)->error);
}

TEST_CASE("what a thread is at work on is what it took last") {
  CHECK(InHand::current().empty());
  const InHand one("one");
  {
    const InHand two("two");
    CHECK(InHand::current() == "two");
  }
  CHECK(InHand::current() == "one");
}
