#include <doctest/doctest.h>

#include <algorithm>
#include <random>

#include "actors/head/journal_folder.h"
#include "tests/actors/head/forgetful_files.h"
#include "tests/actors/head/journal_samples.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::uint64_t kRequests = 4;

/// Three requests run, the second is finished.
std::vector<JournalRecord> stories() {
  std::vector<JournalRecord> all;
  for (std::uint64_t request = 1; request <= kRequests; ++request)
    for (const JournalRecord& record : request == 2 ? finished_story(2, 3) : story(request))
      all.push_back(record);
  return all;
}

Result<journal_folder::Contents> read_file(const std::string& bytes) {
  ForgetfulFiles files;
  files.put(kFolder + "/1.log", bytes);
  return read(files);
}

/// What there is of a request: "" if nobody finds it, "error", or its tokens.
std::string state_of(const Journal& journal, std::uint64_t request) {
  const auto id = find(journal, request);
  if (!id) return "";
  if (journal.request(*id)->error) return "error";
  std::string state = journal.request(*id)->ended ? "ended" : "runs";
  for (std::uint32_t choice = 0; choice < 2; ++choice) {
    const auto& sequence = *journal.find(sequence_of(*id, choice));
    state += " " + std::to_string(sequence.output.size());
  }
  return state;
}

std::vector<std::string> states_of(const Journal& journal) {
  std::vector<std::string> states;
  for (std::uint64_t request = 1; request <= kRequests; ++request)
    states.push_back(state_of(journal, request));
  return states;
}

std::string file_of_version(int version) {
  return version == 1 ? old_file_of(stories()) : file_of(stories());
}

bool is_accepted_frame(std::size_t frame) {
  // Of the stories: four, five, four and four records.
  return frame == 0 || frame == 4 || frame == 9 || frame == 13;
}

}  // namespace

TEST_CASE("a flipped bit anywhere costs one request at most, gives no wrong token, and is told") {
  for (const int version : {1, 2}) {
    const std::string whole = file_of_version(version);
    const auto frames = frames_of(whole);
    const auto before = states_of(read_file(whole)->journal);
    CHECK(before == std::vector<std::string>{"runs 3 0", "ended 3 0", "runs 3 0", "runs 3 0"});
    for (std::size_t at = 0; at < whole.size(); ++at)
      for (const unsigned mask : {0x01u, 0x10u, 0x80u, 0xffu}) {
        CAPTURE(version);
        CAPTURE(at);
        CAPTURE(mask);
        std::string bytes = whole;
        bytes[at] = static_cast<char>(static_cast<unsigned char>(bytes[at]) ^ mask);
        const auto contents = read_file(bytes);
        REQUIRE(contents.ok());
        const std::string bad = wrong(contents->journal);
        CHECK_MESSAGE(bad.empty(), bad);
        CHECK(contents->notes.size() <= 2);
        const auto after = states_of(contents->journal);
        if (at < frames[0]) {
          // The heading is there twice; version 1 had it once, and who asks hears why.
          if (version == 2) CHECK(after == before);
          for (const std::string& state : after) CHECK(state != "");
        } else {
          const std::size_t frame = static_cast<std::size_t>(
              std::ranges::upper_bound(frames, at) - frames.begin() - 1);
          const std::size_t hurt = frame < 4 ? 0 : frame < 9 ? 1 : frame < 13 ? 2 : 3;
          for (std::size_t i = 0; i < kRequests; ++i)
            if (i != hurt) CHECK(after[i] == before[i]);
          if (is_accepted_frame(frame))
            // Its name is found unless that itself is what was hit.
            CHECK((after[hurt] == "error" || after[hurt] == ""));
          else
            CHECK((after[hurt].starts_with("runs") || after[hurt] == before[hurt]));
        }
        if (after != before) CHECK(!contents->notes.empty());
      }
  }
}

TEST_CASE("most acceptances that are hit give an error to whoever asks") {
  for (const int version : {1, 2}) {
    const std::string whole = file_of_version(version);
    const auto frames = frames_of(whole);
    std::size_t told = 0, all = 0;
    for (std::size_t at = frames[4]; at < frames[5]; ++at, ++all) {
      std::string bytes = whole;
      bytes[at] ^= 1;
      told += state_of(read_file(bytes)->journal, 2) == "error";
    }
    CHECK(told > all / 2);
  }
}

TEST_CASE("a file that was cut off anywhere gives what is before the cut") {
  for (const int version : {1, 2}) {
    const std::string whole = file_of_version(version);
    const auto frames = frames_of(whole);
    std::size_t tokens_before = 0;
    for (std::size_t size = 0; size <= whole.size(); ++size) {
      CAPTURE(version);
      CAPTURE(size);
      const auto contents = read_file(whole.substr(0, size));
      REQUIRE(contents.ok());
      CHECK(wrong(contents->journal).empty());
      std::size_t tokens = 0;
      for (const auto& [id, request] : contents->journal.all())
        tokens += contents->journal.find(request.first_sequence)->output.size();
      CHECK(tokens >= tokens_before);
      tokens_before = tokens;
      // Between frames nobody can see a cut.
      const bool at_end = std::ranges::count(frames, size) > 0;
      const bool seen = size > frames[0] && !at_end;
      if (seen) CHECK(contents->notes.size() == 1);
      if (at_end) CHECK(contents->notes.empty());
      CHECK(contents->damaged.empty());
    }
    CHECK(tokens_before == 12);
  }
}

TEST_CASE("a damaged sector in the middle, or at the beginning") {
  for (const int version : {1, 2})
    for (const char filling : {'\0', '\xff', 'x'}) {
      const std::string whole = file_of_version(version);
      for (std::size_t at = 0; at + 512 < whole.size(); at += 64) {
        CAPTURE(version);
        CAPTURE(at);
        std::string bytes = whole;
        bytes.replace(at, 512, 512, filling);
        const auto contents = read_file(bytes);
        REQUIRE(contents.ok());
        CHECK(wrong(contents->journal).empty());
        CHECK((states_of(contents->journal) == states_of(read_file(whole)->journal) ||
               !contents->notes.empty()));
      }
    }
}

TEST_CASE("any number of damages, with bytes that are gone or there twice") {
  for (const int version : {1, 2}) {
    const std::string whole = file_of_version(version);
    const auto before = states_of(read_file(whole)->journal);
    for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
      CAPTURE(version);
      CAPTURE(seed);
      std::mt19937_64 random(seed);
      std::string bytes = whole;
      for (std::uint64_t i = random() % 8 + 1; i > 0; --i) {
        const std::size_t at = random() % bytes.size(), count = random() % 300;
        const std::uint64_t how = random() % 4;
        if (how == 0)
          bytes.erase(at, count);
        else if (how == 1)
          bytes.insert(random() % bytes.size(), bytes.substr(at, count));
        else
          bytes[at] = static_cast<char>(random());
        if (bytes.empty()) bytes = "x";
      }
      const auto contents = read_file(bytes);
      REQUIRE(contents.ok());
      const std::string bad = wrong(contents->journal);
      CHECK_MESSAGE(bad.empty(), bad);
      CHECK(contents->notes.size() <= 2);
    }
  }
}

TEST_CASE("without its heading a file tells whom it hurts, and nothing else") {
  std::string bytes = file_of(stories());
  bytes.replace(0, 2 * journal_format::kHeadingBytes, 2 * journal_format::kHeadingBytes, '\0');
  const auto contents = read_file(bytes);
  CHECK(states_of(contents->journal) == std::vector<std::string>(kRequests, "error"));
  CHECK(contents->damaged.contains(1));
}

TEST_CASE("a frame that is gone without a trace is missed") {
  const std::string whole = file_of(stories());
  const auto frames = frames_of(whole);
  std::string bytes = whole;
  bytes.erase(frames[2], frames[3] - frames[2]);  // tokens of the first request
  const auto contents = read_file(bytes);
  CHECK(state_of(contents->journal, 1) == "runs 0 0");  // they are computed again
  CHECK(state_of(contents->journal, 2) == "ended 3 0");
  REQUIRE(contents->notes.size() == 1);
  CHECK(contents->notes[0].find("missing (1)") != std::string::npos);
  CHECK(contents->damaged.contains(1));
  // One that is there twice says nothing new.
  bytes = whole;
  bytes.insert(frames[3], whole.substr(frames[2], frames[3] - frames[2]));
  CHECK(states_of(read_file(bytes)->journal) == states_of(read_file(whole)->journal));
}

TEST_CASE("frames of another file, as a disk may bring them back, are nobody's") {
  journal_format::Heading other = heading();
  other.file = 99;
  const std::string whole = file_of(story(1));
  const std::string foreign = file_of(story(2), other);
  const auto contents = read_file(whole + foreign.substr(frames_of(foreign)[0]));
  CHECK(contents->journal.requests() == 1);
  CHECK(contents->notes.size() == 1);
}

TEST_CASE("tokens that contradict each other end their request") {
  std::vector<JournalRecord> records = stories();
  records.push_back(JournalTokens{sequence_of(3), 1, {token_of(9, 1), token_of(9, 2)}});
  const auto contents = read_file(file_of(records));
  CHECK(states_of(contents->journal) ==
        std::vector<std::string>{"runs 3 0", "ended 3 0", "error", "runs 3 0"});
  REQUIRE(contents->notes.size() == 1);
  CHECK(contents->notes[0].find("two different answers") != std::string::npos);
}

TEST_CASE("fourteen thousand damaged records are told in a sentence") {
  std::vector<JournalRecord> records{accepted(1)};
  for (std::uint32_t i = 0; i < 14'000; ++i) records.push_back(tokens(1, i % 50, 1));
  std::string bytes = file_of(records);
  const auto frames = frames_of(bytes);
  for (std::size_t i = 1; i + 1 < frames.size(); i += 2) bytes[frames[i] + 60] ^= 1;
  bytes += file_of(story(2)).substr(2 * journal_format::kHeadingBytes);  // out of their order
  const auto contents = read_file(bytes);
  REQUIRE(contents->notes.size() == 1);
  CHECK(contents->notes[0].size() < 1000);
  CHECK(contents->notes[0].find("more places") != std::string::npos);
}

TEST_CASE("a record of a kind that this version does not know is kept aside") {
  std::string bytes = file_of(stories());
  std::vector<std::byte> frame;
  const std::vector<std::byte> strange(32, std::byte{0x11});
  journal_format::put_frame(frame, {.file = heading().file, .serial = 17}, strange);
  bytes.append(reinterpret_cast<const char*>(frame.data()), frame.size());
  const auto contents = read_file(bytes);
  CHECK(contents->damaged.contains(1));
  CHECK(contents->notes.size() == 1);
  CHECK(states_of(contents->journal) == states_of(read_file(file_of(stories()))->journal));
}
