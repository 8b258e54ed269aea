#include "tests/actors/router/named_desk.h"

using namespace troupe;
using namespace troupe::testing;

using Tokens = std::vector<TokenId>;

TEST_CASE("nothing leaves before the acceptance is on storage") {
  NamedDesk desk(keeping(1));
  desk.ask(named("a"));
  desk.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(desk.readings.empty());
  CHECK(desk.router.counts().finished == 0);
  desk.attach("a", {}, false);  // nor to those who look
  CHECK(desk.readings[2].tokens.empty());
  REQUIRE(!desk.kept.empty());
  desk.say(JournalKept{1, desk.kept.back().mark});
  CHECK(desk.readings[1].tokens == Tokens{7, 8, 9, 10});
  CHECK(desk.readings[1].done);
  CHECK(desk.router.counts().finished == 1);
}

namespace {

/// Everything that was written is kept, until there is nothing more to write.
void take_all(NamedDesk& desk) {
  for (std::uint64_t last = 0; desk.kept.back().mark != last;) {
    last = desk.kept.back().mark;
    desk.say(JournalKept{desk.kept.back().file, last});
  }
}

/// The disk has nothing of a file.
void drop_file(NamedDesk& desk, std::uint64_t file) {
  std::erase_if(desk.kept, [file](const KeepRecords& keep) { return keep.file == file; });
}

void check_refused(const Result<std::uint64_t>& answer) {
  REQUIRE(!answer.ok());
  CHECK(answer.error().code == ErrorCode::kUnavailable);
  for (const char* part : {"journal cannot be written", "/a/disk", "move /a/disk away",
                           "--no-journal"})
    CHECK(answer.error().message.find(part) != std::string::npos);
}

}  // namespace

TEST_CASE("when storage fails, what it has goes on, what it lacks and newcomers are refused") {
  Router::Options options = keeping(1);
  options.journal_folder = "/a/disk";
  NamedDesk desk(options);
  desk.ask(named("kept", "key"));
  take_all(desk);
  desk.ask(named("lacking", "other"));
  desk.give(2, {7});
  SUBCASE("fails") { desk.say(JournalFailed{1, "/a/disk is full."}); }
  SUBCASE("hangs") {
    REQUIRE(desk.wake_at);
    CHECK(*desk.wake_at <= desk.now + limits::kJournalPatience);
    desk.wake(limits::kJournalPatience);
  }
  REQUIRE(desk.notes.size() == 1);
  CHECK(desk.notes[0] == desk.router.trouble());
  // Whose acceptance is not kept was never accepted, and nobody finds it.
  CHECK(desk.readings[2].tokens.empty());
  CHECK(desk.readings[2].done);
  REQUIRE(desk.readings[2].error);
  check_refused(*desk.readings[2].error);
  REQUIRE(desk.cancels.size() == 1);
  CHECK(desk.cancels[0].second.sequence == SequenceId{2});
  CHECK(desk.attach("lacking").request.error().code == ErrorCode::kNotFound);
  check_refused(desk.ask(named("newcomer")).request);
  check_refused(desk.ask(named("again", "other")).request);
  // Who has a key that is known comes back, and what was accepted comes to its end.
  CHECK(*desk.ask(named("b", "key")).request == 1);
  desk.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(desk.readings[1].tokens == Tokens{7, 8, 9, 10});
  CHECK(desk.readings[1].done);

  // It was begun again at once, with all that there is.
  drop_file(desk, 1);
  REQUIRE(!desk.kept.empty());
  CHECK(desk.kept[0].begins);
  CHECK(desk.kept[0].completes);
  CHECK(desk.kept[0].file == 2);
  desk.say(JournalKept{1, 100});  // of the file before
  check_refused(desk.ask(named("early")).request);
  take_all(desk);
  CHECK(desk.notes.size() == 2);
  CHECK(desk.router.trouble() == "");
  CHECK(desk.stored().requests() == 1);
  CHECK(desk.stored().request(1)->ended);
  CHECK(desk.ask(named("newcomer", "other")).request.ok());
}

TEST_CASE("who has no name needs no storage") {
  NamedDesk desk(keeping(1));
  desk.say(JournalFailed{1, "The disk is full."});
  CHECK(desk.ask(prompt_of(3, 4)).request.ok());
  desk.give(1, {7});
  CHECK(desk.readings[1].tokens == Tokens{7});
}

TEST_CASE("a storage that fails again is said once, with its newest reason, and tried less often") {
  NamedDesk desk(keeping(1));
  desk.say(JournalFailed{1, "It hangs."});
  CHECK(desk.kept.back().file == 2);
  desk.say(JournalFailed{2, "It is full."});
  CHECK(desk.notes.size() == 1);
  CHECK(desk.ask(named("a")).request.error().message.find("It is full.") != std::string::npos);
  CHECK(desk.kept.back().file == 2);
  REQUIRE(desk.wake_at);
  CHECK(*desk.wake_at == desk.now + limits::kJournalRetry);
  desk.wake(limits::kJournalRetry);
  CHECK(desk.kept.back().file == 3);
  // One that is well again for a while is tried at once, too.
  take_all(desk);
  desk.wake(limits::kJournalRetry);
  desk.say(JournalFailed{3, "It is full."});
  CHECK(desk.kept.back().file == 4);
}

TEST_CASE("a storage that hangs is given up, even if whoever waited first is gone") {
  NamedDesk desk(keeping(1));
  desk.ask(named("a"));
  desk.ask(named("b"));
  desk.give(2, {7});
  desk.say(CancelRequest{1, 0});
  REQUIRE(desk.wake_at);
  CHECK(*desk.wake_at <= desk.now + limits::kJournalPatience);
  desk.wake(limits::kJournalPatience);
  CHECK(desk.readings[2].error);
  CHECK(desk.notes.size() == 1);
}

// The disk may have what it did not say that it has.
TEST_CASE("what was refused or deleted while storage failed is not found by the next head") {
  NamedDesk first(keeping(1));
  first.ask(named("deleted"));
  take_all(first);
  first.ask(named("refused", "key"));
  CHECK(first.stored().requests() == 2);
  first.say(JournalFailed{1, "The disk is full."});
  CHECK(first.stored().requests() == 1);
  const auto told = all<RequestsFound>(first.say(FindRequests{3, "deleted", 5, true}));
  REQUIRE(told.size() == 1);
  CHECK(told[0].requests.error().code == ErrorCode::kUnavailable);
  CHECK(first.stored().requests() == 0);
  // Also if that file fails, and it is the next that says so.
  CHECK(first.kept.back().file == 2);
  drop_file(first, 2);
  CHECK(first.stored().requests() == 2);
  first.say(JournalFailed{2, "The disk is full."});
  first.wake(limits::kJournalRetry);
  CHECK(first.stored().requests() == 0);
  take_all(first);
  CHECK(*first.ask(named("again", "key")).request == 3);
}

TEST_CASE("an end is told once storage has it") {
  NamedDesk desk(keeping(1));
  desk.ask(named("a"));
  take_all(desk);
  desk.give(1, {7, 8});
  CHECK(desk.readings[1].tokens == Tokens{7, 8});  // tokens wait for nothing
  desk.give(1, {9, 10}, FinishReason::kLength);
  CHECK(desk.readings[1].tokens == Tokens{7, 8});
  CHECK(desk.kept.back().tells);  // the writer says when it has it
  const Journal stored = desk.stored();
  CHECK(stored.find(SequenceId{1})->finish == FinishReason::kLength);
  // Who comes meanwhile hears of it with the others, also who only looks.
  desk.attach("a");
  desk.attach("a", {3}, false);
  CHECK(desk.readings[2].tokens.empty());
  CHECK(!desk.readings[3].done);
  SUBCASE("it has it") { take_all(desk); }
  // Waiting for ever would be worse.
  SUBCASE("it fails") { desk.say(JournalFailed{1, "The disk is full."}); }
  SUBCASE("it hangs") { desk.wake(limits::kJournalPatience); }
  CHECK(desk.readings[1].tokens == Tokens{7, 8, 9, 10});
  CHECK(desk.readings[2].tokens == Tokens{7, 8, 9, 10});
  CHECK(desk.readings[3].tokens == Tokens{10});
  for (const std::uint64_t reader : {1, 2, 3}) {
    CHECK(desk.readings[reader].done);
    CHECK(desk.readings[reader].finish == FinishReason::kLength);
  }
}

TEST_CASE("an error is told once storage has it, and the next head knows it") {
  NamedDesk desk(keeping(1));
  desk.ask(named("a", "key"));
  take_all(desk);
  desk.give(1, {7, 8});
  desk.wake(std::chrono::seconds(10));
  CHECK(!desk.readings[1].done);
  CHECK(desk.kept.back().tells);
  desk.attach("a");
  CHECK(!desk.readings[2].done);
  NamedDesk next(keeping(2, std::make_shared<Journal>(desk.stored())));
  CHECK(next.submits.empty());
  take_all(desk);
  for (const std::uint64_t reader : {1, 2}) {
    REQUIRE(desk.readings[reader].error);
    CHECK(desk.readings[reader].error->code == ErrorCode::kDeadlineExceeded);
  }
  CHECK(desk.readings[1].tokens == Tokens{7, 8});
}

TEST_CASE("of several choices only the end of all waits") {
  NamedDesk desk(keeping(1));
  PreparedRequest prepared = named("a");
  prepared.n = 2;
  desk.ask(prepared);
  take_all(desk);
  desk.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(desk.readings[1].tokens.size() == 4);
  desk.give(2, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(desk.readings[1].tokens.size() == 4);
  take_all(desk);
  CHECK(desk.readings[1].tokens.size() == 8);
  CHECK(desk.readings[1].done);
}

TEST_CASE("a cluster that stops waits for no storage") {
  NamedDesk desk(keeping(1));
  desk.ask(named("kept"));
  take_all(desk);
  desk.ask(named("lacking"));
  desk.say(RequestsEnd{"The cluster is stopping."});
  for (const std::uint64_t reader : {1, 2}) {
    REQUIRE(desk.readings[reader].error);
    CHECK(desk.readings[reader].error->message == "The cluster is stopping.");
  }
}

TEST_CASE("who looks for a request hears whether it is kept") {
  NamedDesk desk(keeping(1));
  const auto kept = [&] {
    const auto found = all<RequestsFound>(desk.say(FindRequests{3, "a", 5}));
    REQUIRE(found.size() == 1);
    REQUIRE(found[0].requests.ok());
    return found[0].requests->at(0).kept;
  };
  desk.ask(named("a"));
  CHECK(!kept());
  desk.say(JournalKept{1, desk.kept.back().mark});
  CHECK(kept());
  desk.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  CHECK(kept());
}

TEST_CASE("what was deleted is told once the next head knows") {
  NamedDesk desk(keeping(1));
  desk.ask(named("a", "", 100));
  desk.ask(named("b"));
  desk.give(2, {7, 8, 9, 10}, FinishReason::kLength);
  desk.say(JournalKept{1, desk.kept.back().mark});
  for (const char* id : {"a", "b"}) {
    CHECK(all<RequestsFound>(desk.say(FindRequests{3, id, 5, true})).empty());
    CHECK(desk.kept.back().tells);  // the writer says when it has it
    const auto told = desk.say(JournalKept{1, desk.kept.back().mark});
    REQUIRE(all<RequestsFound>(told).size() == 1);
    CHECK(all<RequestsFound>(told)[0].requests.ok());
  }
  CHECK(desk.stored().request(1) == nullptr);
  CHECK(desk.stored().request(2) == nullptr);
  // A storage that says nothing delays it, and no longer.
  desk.ask(named("c", "", 100));
  CHECK(all<RequestsFound>(desk.say(FindRequests{3, "c", 5, true})).empty());
  RouterEffects effects;
  desk.now += limits::kJournalPatience;
  wake(desk.router, desk.now, effects);
  CHECK(all<RequestsFound>(effects).size() == 1);
}

TEST_CASE("answers that are kept do not make the journal begin again and again") {
  NamedDesk desk(keeping(1));
  for (std::uint64_t i = 1; i <= 400; ++i) {
    desk.ask(named("r" + std::to_string(i), "", 6000));
    desk.give(i, std::vector<TokenId>(6000, 7), FinishReason::kLength);
    take_all(desk);
  }
  CHECK(desk.kept.back().file <= 3);
}

TEST_CASE("the journal begins again before large forms and grammars fill the disk") {
  NamedDesk desk(keeping(1));
  std::size_t bytes = 0;
  for (std::uint64_t i = 1; desk.kept.empty() || desk.kept.back().file == 1; ++i) {
    PreparedRequest prepared = named("r" + std::to_string(i), "", 1);
    auto name = std::make_shared<RequestName>(*prepared.name);
    name->form.assign(1 << 20, 'x');
    prepared.name = std::move(name);
    desk.ask(std::move(prepared));
    desk.say(JournalKept{desk.kept.back().file, desk.kept.back().mark});
    desk.say(FindRequests{1, "r" + std::to_string(i), 5, true});
    REQUIRE((bytes += 1 << 20) < 64u << 20);
  }
}

TEST_CASE("a next life goes on where the journal ends") {
  const auto tokenizer = demo_tokenizer();
  NamedDesk first(keeping(1, nullptr, tokenizer));
  first.ask(named("a", "key"));
  first.ask(named("b", "other"));
  first.say(JournalKept{1, 100});
  first.give(1, {7, 8});
  first.give(2, {5, 6, 7, 8}, FinishReason::kLength);
  const std::uint64_t seed = first.submits[0].second.sampling.seed;

  NamedDesk next(keeping(2, std::make_shared<Journal>(first.stored()), tokenizer));
  REQUIRE(next.submits.size() == 1);
  const Submit& submit = next.submits[0].second;
  CHECK(submit.output == Tokens{7, 8});
  CHECK(submit.sampling.seed == seed);
  CHECK(submit.attempt == 1);
  CHECK(next.router.counts().replayed == 1);
  // The clients come back before anything is on the new life's storage.
  next.ask(named("c", "key"));
  next.ask(named("d", "other"));
  CHECK(next.readings[2].tokens == Tokens{5, 6, 7, 8});
  REQUIRE(next.kept.size() >= 1);
  CHECK(next.kept[0].begins);
  next.say(JournalKept{2, 1});
  CHECK(next.readings[1].tokens == Tokens{7, 8});
  next.give(1, {9, 10}, FinishReason::kLength);
  take_all(next);
  CHECK(next.readings[1].tokens == Tokens{7, 8, 9, 10});
  CHECK(next.readings[1].text.starts_with(first.readings[1].text));
  CHECK(next.readings[1].done);
  // Numbers go on.
  CHECK(*next.ask(named("e")).request == 3);
}

TEST_CASE("an end that was not written any more comes again") {
  NamedDesk first(keeping(1));
  first.ask(named("a"));
  first.give(1, {7, 8, 9, 10}, FinishReason::kLength);
  auto stored = std::make_shared<Journal>();
  for (const KeepRecords& keep : first.kept)
    for (const JournalRecord& record : keep.records)
      if (stored->fits(record) && !std::holds_alternative<JournalFinished>(record) &&
          !std::holds_alternative<JournalEnded>(record))
        stored->append(record);
  REQUIRE(stored->find(SequenceId{1})->output.size() == 4);
  NamedDesk next(keeping(2, stored));
  REQUIRE(next.submits.size() == 1);
  CHECK(next.submits[0].second.output == Tokens{7, 8, 9});
  next.say(JournalKept{2, 1});
  next.attach("a");
  next.give(1, {10}, FinishReason::kLength);
  take_all(next);
  CHECK(next.readings[1].tokens == Tokens{7, 8, 9, 10});
  CHECK(next.router.counts().finished == 1);
}

TEST_CASE("a request whose choices are all over is over in the next life, too") {
  NamedDesk first(keeping(1));
  first.ask(named("a"));
  first.give(1, {7, 8, 9, 10}, FinishReason::kLength);  // not on storage yet: it is not over
  auto stored = std::make_shared<Journal>(first.stored());
  REQUIRE(!stored->request(1)->ended);
  NamedDesk next(keeping(2, stored));
  CHECK(next.submits.empty());
  next.say(JournalKept{2, 1});
  CHECK(next.router.counts().finished == 1);
  next.attach("a");
  CHECK(next.readings[1].tokens == Tokens{7, 8, 9, 10});
}

TEST_CASE("a journal that has grown is begun again, and nothing of it is missing") {
  NamedDesk desk(keeping(1));
  desk.say(JournalKept{1, 1});
  const auto ask = [&](std::uint32_t i) {
    PreparedRequest prepared = named("r" + std::to_string(i), "", 4);
    prepared.prompt.assign(60'000, 1);
    desk.ask(std::move(prepared));
    desk.say(JournalKept{desk.kept.back().file, desk.kept.back().mark});
  };
  std::uint32_t asked = 0;
  for (; asked < 4; ++asked) ask(asked);
  const std::uint64_t begun = desk.kept.back().file;
  for (; desk.kept.back().file == begun && asked < 1000; ++asked) {
    ask(asked);
    desk.say(FindRequests{1, "r" + std::to_string(asked), 5, true});
  }
  CHECK(asked < 1000);
  desk.give(1, {7});
  desk.give(2, {8});
  // What is told again goes on as the storage takes it.
  for (int i = 0; i < 100 && !desk.kept.back().completes; ++i)
    desk.say(JournalKept{desk.kept.back().file, desk.kept.back().mark});
  Journal journal;
  for (const KeepRecords& keep : desk.kept)
    if (keep.file > begun)
      for (const JournalRecord& record : keep.records)
        if (journal.fits(record)) journal.append(record);
  CHECK(journal.requests() == desk.router.journal().requests());
  CHECK(journal.words() == desk.router.journal().words());
  CHECK(journal.find(SequenceId{2})->output == Tokens{8});
}

TEST_CASE("a key stays with who has it when an earlier failure is read back") {
  NamedDesk first(keeping(1));
  first.ask(named("a", "key"));
  first.say(JournalKept{1, 100});
  first.wake(std::chrono::seconds(10));
  REQUIRE(first.router.counts().failed == 1);
  CHECK(*first.ask(named("b", "key")).request == 2);
  NamedDesk next(keeping(2, std::make_shared<Journal>(first.stored())));
  const auto again = next.ask(named("c", "key"));
  CHECK(*again.request == 2);
  CHECK(again.name->id == "b");
}

TEST_CASE("a crash while requests are told again after a failure ends none before its end") {
  NamedDesk first(keeping(1));
  first.ask(named("a", "", 100));
  first.say(JournalKept{1, 100});
  first.give(1, {7, 8});
  first.say(JournalFailed{1, "The disk is full."});
  first.say(JournalFailed{2, "The disk is full."});
  drop_file(first, 2);
  first.give(1, {9, 10});  // written nowhere
  const Journal before = first.stored();
  // The new file says how it ends before it says what it is: as if it were told later.
  Journal stored = before;
  const JournalRecord late[] = {JournalTokens{SequenceId{1}, 4, {{11, 0, {}}}},
                                JournalFinished{SequenceId{1}, FinishReason::kLength, 5},
                                JournalEnded{1, 0, std::nullopt}};
  for (const JournalRecord& record : late)
    if (stored.fits(record)) stored.append(record);
  CHECK(!stored.request(1)->ended);
  CHECK(stored.find(SequenceId{1})->output == Tokens{7, 8});
  NamedDesk next(keeping(2, std::make_shared<Journal>(stored)));
  REQUIRE(next.submits.size() == 1);
  CHECK(next.submits[0].second.output == Tokens{7, 8});
}

TEST_CASE("answers age while a head is there, whatever the clock says between its lives") {
  constexpr std::int64_t kHour = 3'600'000, kNow = 500'000 * kHour;
  for (const std::int64_t jump : {std::int64_t{0}, 5 * kHour, -5 * kHour, -2 * kNow, kUnixMsMax}) {
    CAPTURE(jump);
    Router::Options options = keeping(1);
    options.started = {TimePoint{}, kNow};
    NamedDesk first(options);
    first.ask(named("old"));
    first.give(1, {7, 8, 9, 10}, FinishReason::kLength);
    take_all(first);
    first.wake(std::chrono::minutes(40));
    first.ask(named("new"));
    first.give(2, {7, 8, 9, 10}, FinishReason::kLength);
    take_all(first);
    // The clock jumps, and then it jumps back.
    NamedDesk* before = &first;
    std::unique_ptr<NamedDesk> next;
    for (std::uint64_t life = 2; life < 4; ++life) {
      options = keeping(life, std::make_shared<Journal>(before->stored()));
      options.started = {TimePoint{}, life == 2 ? kNow + jump : kNow};
      next = std::make_unique<NamedDesk>(options);
      take_all(*next);
      CHECK(next->attach("old").request.ok());
      before = next.get();
    }
    next->wake(std::chrono::minutes(21));
    CHECK(next->attach("old").request.ok() == (jump == -2 * kNow));
    CHECK(next->attach("new").request.ok());
    next->wake(std::chrono::minutes(40));
    CHECK(!next->attach("old").request.ok());
    CHECK(!next->attach("new").request.ok());
  }
}

TEST_CASE("answers that the head before did not tell again are not older for its clock") {
  constexpr std::int64_t kHour = 3'600'000;
  const auto journal = std::make_shared<Journal>();
  for (std::uint64_t i = 1; i <= 2; ++i) {
    journal->append(JournalAccepted{
        i, SequenceId{i}, kHour,
        std::make_shared<const PreparedRequest>(named("r" + std::to_string(i)))});
    journal->append(JournalFinished{SequenceId{i}, FinishReason::kStop, 0});
    journal->append(JournalEnded{i, 10 * kHour, std::nullopt});
  }
  journal->change_clock();
  journal->append(JournalEnded{1, 12 * kHour, std::nullopt});
  Router::Options options = keeping(2, journal);
  options.started = {TimePoint{}, 20 * kHour};
  NamedDesk desk(options);
  take_all(desk);
  for (const char* id : {"r1", "r2"}) REQUIRE(desk.attach(id).request.ok());
  for (std::uint64_t i = 1; i <= 2; ++i)
    CHECK(desk.stored().request(i)->ended_unix_ms == 20 * kHour);
  desk.wake(limits::kFinishedKept);
  for (const char* id : {"r1", "r2"}) CHECK(!desk.attach(id).request.ok());
}
