#include <doctest/doctest.h>

#include <functional>
#include <map>
#include <memory>
#include <random>
#include <utility>
#include <vector>

#include "actors/head/journal_disk.h"
#include "tests/actors/head/forgetful_files.h"
#include "tests/actors/head/journal_samples.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

using Files = std::shared_ptr<ForgetfulFiles>;

/// What somebody was told, and must find again.
struct Promise {
  std::map<std::uint64_t, bool> accepted;  ///< requests, and whether they are forgotten again
};

struct Step {
  KeepRecords records;
  std::function<void(Promise&)> told = [](Promise&) {};
};

KeepRecords of(std::uint64_t file, std::vector<JournalRecord> records) {
  return {file, 0, false, false, false, 0, std::move(records)};
}

Step accept(std::uint64_t file, std::uint64_t request) {
  return {of(file, {accepted(request)}), [request](Promise& p) { p.accepted[request] = false; }};
}

/// Requests come, get tokens, end; the next file begins and takes the place of the first.
std::vector<Step> scenario(std::uint64_t file, std::uint64_t first) {
  const std::uint64_t a = first, b = first + 1, c = first + 2;
  std::vector<Step> steps;
  steps.push_back(accept(file, a));
  steps.push_back({of(file, {tokens(a, 0, 2)})});
  steps.push_back(accept(file, b));
  steps.push_back({of(file, {tokens(a, 2, 2), tokens(b, 0, 1)})});
  KeepRecords begins = of(file + 1, {accepted(a), tokens(a, 0, 4)});
  begins.begins = begins.tells = true;
  steps.push_back({begins});
  steps.push_back({of(file + 1, {tokens(a, 4, 1), tokens(b, 1, 1)})});
  KeepRecords completes = of(file + 1, {accepted(b), tokens(b, 0, 2)});
  completes.tells = completes.completes = true;
  steps.push_back({completes});
  steps.push_back({of(file + 1, {JournalForgotten{b}}), [b](Promise& p) { p.accepted[b] = true; }});
  steps.push_back(accept(file + 1, c));
  steps.push_back({of(file + 1, {tokens(c, 0, 3),
                                 JournalFinished{sequence_of(c), FinishReason::kLength, 3},
                                 JournalFinished{sequence_of(c, 1), FinishReason::kLength, 0},
                                 JournalEnded{c, 5, std::nullopt}})});
  return steps;
}

/// A life of a head: it tells again what it has found, and goes on with the scenario. What it was
/// told of goes into `promise` at once.
void live(const Files& files, std::uint64_t first, Promise& promise) {
  auto found = read(*files);
  if (!found.ok()) return;  // the power is gone
  JournalDisk disk({files, kFolder, heading(), found->damaged, [] { return 3; }});
  std::uint64_t file = found->next_file;
  const auto begin = [&](std::uint64_t number) {
    KeepRecords begins = of(number, {});
    Journal::Place place;
    begins.begins = begins.tells = true;
    begins.completes = found->journal.tell(place, ~0ull, 1u << 20, begins.records);
    return begins;
  };
  if (!disk.write({begin(file)}).ok()) return;
  for (Step& step : scenario(file, first)) {
    if (step.records.begins) {
      // All that an earlier life had goes into the next file as well.
      KeepRecords all = begin(step.records.file);
      step.records.records.insert(step.records.records.begin(), all.records.begin(),
                                  all.records.end());
    }
    // Who has asked for its end, and was not told of it, may find it or not.
    for (const JournalRecord& record : step.records.records)
      if (const auto* forgotten = std::get_if<JournalForgotten>(&record))
        promise.accepted.erase(forgotten->request);
    if (!disk.write({step.records}).ok()) return;
    step.told(promise);
  }
}

/// The power goes behind that operation of the life: what is done from there on is done by nobody.
Files live_until(const Files& files, std::uint64_t operation, std::uint64_t seed,
                 std::uint64_t first, Promise& promise) {
  Files left;
  files->operations = 0;
  files->before = [&, f = files.get()](const std::string&, const std::string&) {
    if (f->operations <= operation) return Status();
    if (!left) left = f->after_power_cut(seed);
    return Status(unavailable("The power is gone."));
  };
  live(files, first, promise);
  return left ? left : files->after_power_cut(seed);
}

/// What of it is not there, or is wrong; empty: nothing.
std::string broken(ForgetfulFiles& files, const Promise& promise) {
  const auto contents = read(files);
  if (!contents.ok()) return contents.error().message;
  if (const std::string bad = wrong(contents->journal); !bad.empty()) return bad;
  for (const auto& [request, forgotten] : promise.accepted) {
    const auto id = find(contents->journal, request);
    const std::string name = "request " + std::to_string(request);
    if (id && forgotten) return name + " is there again";
    if (!id && !forgotten) return name + " is gone";
    if (id && contents->journal.request(*id)->error) return name + " has failed";
  }
  return {};
}

void check_kept(ForgetfulFiles& files, const Promise& promise) {
  const std::string what = broken(files, promise);
  CHECK_MESSAGE(what.empty(), what);
}

}  // namespace

TEST_CASE("whenever the power goes, what was told to be kept is there, and nothing wrong") {
  Promise all;
  const auto whole = std::make_shared<ForgetfulFiles>();
  live(whole, 1, all);
  REQUIRE(all.accepted.size() == 3);
  for (std::uint64_t operation = 0; operation <= whole->operations; ++operation)
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      CAPTURE(operation);
      CAPTURE(seed);
      Promise promise;
      const auto files = std::make_shared<ForgetfulFiles>();
      const Files left = live_until(files, operation, seed, 1, promise);
      check_kept(*left, promise);
    }
}

TEST_CASE("without any one of the syncs something is lost") {
  std::string lost_by, lost_at;
  SUBCASE("of files") { lost_by = "sync"; }
  SUBCASE("of their names") {
    lost_by = "sync_folder";
    lost_at = kFolder;
  }
  SUBCASE("of the folder's name") {
    lost_by = "sync_folder";
    lost_at = "state";
  }
  std::size_t found = 0;
  for (std::uint64_t operation = 0; operation < 40; ++operation)
    for (std::uint64_t seed = 1; seed <= 16; ++seed) {
      Promise promise;
      const auto files = std::make_shared<ForgetfulFiles>();
      files->lies = [&](const std::string& asked, const std::string& path) {
        return asked == lost_by && (lost_at.empty() || path == lost_at);
      };
      found += broken(*live_until(files, operation, seed, 1, promise), promise).empty() ? 0 : 1;
    }
  CHECK(found > 0);
}

TEST_CASE("through several lives whose power goes") {
  for (std::uint64_t seed = 1; seed <= 400; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    Promise promise;
    Files files = std::make_shared<ForgetfulFiles>();
    for (std::uint64_t life = 0; life < 5; ++life) {
      CAPTURE(life);
      const std::uint64_t operation = random() % 60, cut = random();
      files = live_until(files, operation, cut, 1 + 10 * life, promise);
      check_kept(*files, promise);
    }
  }
}

TEST_CASE("what a head has found outlives a power cut, although nobody had synced it") {
  for (std::uint64_t seed = 1; seed <= 32; ++seed) {
    CAPTURE(seed);
    const auto files = std::make_shared<ForgetfulFiles>();
    JournalDisk disk({files, kFolder, heading(), {}, [] { return 3; }});
    KeepRecords begins = of(1, {});
    begins.begins = true;
    REQUIRE(disk.write({begins}).ok());
    KeepRecords story = of(1, finished_story(1, 3));
    std::erase_if(story.records, [](const JournalRecord& record) {
      return std::holds_alternative<JournalAccepted>(record);
    });
    REQUIRE(disk.write({of(1, {accepted(1)})}).ok());
    REQUIRE(disk.write({story}).ok());  // which nobody waits for
    const auto before = read(*files);
    REQUIRE(before.ok());
    REQUIRE(before->journal.request(1)->ended);
    const auto after = read(*files->after_power_cut(seed));
    REQUIRE(after.ok());
    CHECK(after->journal.request(1)->ended);
  }
}

TEST_CASE("an operation that fails ends its file, and all is written again in the next one") {
  Promise all;
  const auto whole = std::make_shared<ForgetfulFiles>();
  live(whole, 1, all);
  for (std::uint64_t operation = 1; operation <= whole->operations; ++operation)
    for (std::uint64_t seed = 1; seed <= 8; ++seed) {
      CAPTURE(operation);
      CAPTURE(seed);
      const auto files = std::make_shared<ForgetfulFiles>();
      files->before = [&, f = files.get()](const std::string&, const std::string&) {
        return f->operations == operation ? Status(unavailable("It failed once."))
                                          : Status();
      };
      JournalDisk disk({files, kFolder, heading(), {}, [] { return 3; }});
      Promise promise;
      Journal journal;
      std::uint64_t file = 0;
      bool begin = true;
      for (Step& step : scenario(1, 1)) {
        for (const JournalRecord& record : step.records.records)
          if (journal.fits(record)) journal.append(record);
        begin = begin || step.records.begins;
        // As the Router does after a failure: the next one begins with all that it has.
        for (bool done = false; !done; begin = !done) {
          KeepRecords records = begin ? of(++file, {}) : step.records;
          records.file = file;
          Journal::Place place;
          if (begin)
            records.completes = journal.tell(place, ~0ull, 1u << 20, records.records);
          records.begins = begin;
          records.tells = begin || records.tells;
          done = disk.write({records}).ok();
        }
        step.told(promise);
      }
      check_kept(*files->after_power_cut(seed), promise);
    }
}
