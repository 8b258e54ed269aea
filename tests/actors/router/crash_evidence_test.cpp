#include <doctest/doctest.h>

#include <chrono>
#include <string>
#include <utility>
#include <vector>

#include "tests/actors/router/desk.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

TEST_CASE("no number of workers that are killed, hang or are cut off convicts a request") {
  Desk desk(1);
  PreparedRequest patient = prompt_of(3, 50);
  patient.timeout = 1000s;
  desk.submit(patient);
  for (std::uint32_t replica = 0; replica < 10; ++replica) {
    desk.start(1, replica);
    desk.lose(replica);
    desk.serve(replica + 2, replica + 1);
  }
  CHECK(desk.submits.size() == 11);
  desk.tokens(1, {1}, FinishReason::kStop, 10);
  CHECK(desk.router.counts().finished == 1);
}

TEST_CASE("what is alone when its worker crashes twice without a new token is given up") {
  for (const bool token : {false, true}) {
    Desk desk(3);
    desk.submit(prompt_of(3, 50));
    desk.start(1, 0);
    desk.crash(0);
    CHECK(desk.events.empty());
    desk.start(1, 1);
    if (token) desk.tokens(1, {8}, FinishReason::kNone, 1);
    desk.crash(1);
    if (token) {
      // The strike was cleared, and there is no new one.
      CHECK(desk.submits.size() == 3);
      desk.start(1, 2);
      desk.crash(2);
      CHECK(desk.router.counts().failed == 0);
      continue;
    }
    REQUIRE(desk.events.size() == 1);
    CHECK(desk.events[0].error->code == ErrorCode::kInternal);
    CHECK(desk.events[0].error->message.find("running alone each time a worker crashed, 2 times") !=
          std::string::npos);
    CHECK(desk.events[0].error->message.find("node-2 crashed") != std::string::npos);
    CHECK(desk.events[0].request_done);
  }
}

TEST_CASE("word of a crash may come late: a token that came meanwhile clears, silence does not") {
  Desk desk(1);
  desk.submit(prompt_of(3, 50));
  desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    desk.start(1, replica);
    desk.start(2, replica);
    desk.lose(replica);
    desk.serve(replica + 2, replica + 1);
    desk.start(1, replica + 1);
    desk.tokens(2, {8}, FinishReason::kNone, replica + 1);
    desk.tell_crash(replica);
    desk.tell_crash(replica);  // Said twice, it counts once.
  }
  CHECK(desk.events.size() == 2);  // The second's tokens.
  // The first is the suspect now: newcomers go elsewhere.
  desk.serve(4, 2);
  desk.submit(prompt_of(3, 50));
  CHECK(desk.submits.back().first == replica_address(3));
  desk.tell_crash(7);  // Nobody knows that life.
  desk.wake(kCrashReportWait + 1ms);
  CHECK(desk.router.violation() == "");
}

TEST_CASE("word of a crash that comes much too late is no evidence") {
  Desk desk(1);
  PreparedRequest patient = prompt_of(3, 50);
  patient.timeout = 1000s;
  desk.submit(patient);
  for (std::uint32_t replica = 0; replica < 4; ++replica) {
    desk.start(1, replica);
    desk.lose(replica);
    desk.serve(replica + 2, replica + 1);
    desk.wake(kCrashReportWait + 1ms);
    desk.tell_crash(replica);
  }
  CHECK(desk.events.empty());
}

TEST_CASE("a worker that computed experts only convicts those whose rows it may have had") {
  Desk desk(2);
  PreparedRequest patient = prompt_of(3, 50);
  patient.timeout = 1000s;
  desk.submit(patient);  // Its rows crash whoever computes their experts; its replica lives on.
  desk.submit(patient);
  desk.start(2, 1);
  std::uint64_t life = 100;
  for (int i = 0; i < 4; ++i, ++life) {
    CHECK(desk.router.counts().failed == 0);
    std::uint32_t at = 0;
    for (const auto& [to, submit] : desk.submits)
      if (submit.sequence == SequenceId{1}) at = to.actor.index;
    desk.start(1, at);
    desk.tokens(2, {8}, FinishReason::kNone, 1);
    desk.say(LifeLost{Incarnation{life}, {0, 1}});
    desk.tokens(2, {8}, FinishReason::kNone, 1);
    desk.say(LifeCrashed{Incarnation{life}, "node-9 crashed."});
  }
  CHECK(desk.router.counts().failed == 1);
  CHECK(!desk.router.journal().find(SequenceId{1}));
  CHECK(desk.router.journal().find(SequenceId{2}));
}

TEST_CASE("suspects that run beside each other are separated") {
  Desk desk(1);
  for (int i = 0; i < 2; ++i) desk.submit(prompt_of(3, 50));
  desk.start(1);
  desk.start(2);
  for (std::uint64_t life = 100; life < 102; ++life) {
    desk.say(LifeLost{Incarnation{life}, {0}});
    desk.say(LifeCrashed{Incarnation{life}, "node-9 crashed."});
  }
  CHECK(desk.cancels.size() == 2);
  const std::size_t before = desk.submits.size();
  CHECK(before == 3);
  CHECK(desk.submits.back().second.sequence == SequenceId{1});
  desk.tokens(1, {8});
  REQUIRE(desk.submits.size() == before + 1);  // The first is cleared, the second is tried.
  CHECK(desk.submits.back().second.sequence == SequenceId{2});
}

TEST_CASE("waiting in a replica's queue, or a planned move, is no reason for suspicion") {
  Desk desk(4);
  desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 3; ++replica) desk.crash(replica);  // Never begun.
  desk.start(1, 3);
  desk.serve(5, 4);
  desk.start(1, 4);
  desk.serve(6, 5);
  desk.start(1, 5);
  desk.crash(5);
  CHECK(desk.events.empty());
  CHECK(desk.router.counts().failed == 0);
}

TEST_CASE("several suspects are tried one at a time, and only they wait") {
  Desk desk(1);
  for (int i = 0; i < 3; ++i) desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    for (std::uint64_t id = 1; id <= 3; ++id) desk.start(id, replica);
    desk.crash(replica);
    CHECK(desk.events.empty());
    desk.serve(replica + 2, replica + 1);
  }
  // All three have two strikes: one runs, the others wait; a newcomer does not.
  REQUIRE(desk.submits.size() == 7);
  CHECK(desk.submits.back().second.sequence == SequenceId{1});
  desk.submit(prompt_of(3, 50));
  REQUIRE(desk.submits.size() == 8);
  desk.tokens(4, {8}, FinishReason::kStop, 2);
  // A token clears the first: the next one is tried.
  desk.start(1, 2);
  CHECK(desk.submits.size() == 8);
  desk.tokens(1, {8}, FinishReason::kNone, 2);
  REQUIRE(desk.submits.size() == 9);
  CHECK(desk.submits.back().second.sequence == SequenceId{2});
  // It kills its worker in company: one more strike, no proof.
  desk.start(2, 2);
  desk.crash(2);
  CHECK(desk.router.counts().failed == 0);
  desk.serve(4, 3);
  // The first goes on elsewhere, the second is tried again, alone after the first has ended.
  desk.tokens(1, {1}, FinishReason::kStop, 3);
  desk.start(2, 3);
  desk.crash(3);
  CHECK(desk.router.counts().failed == 1);
  CHECK(desk.events.back().error->message.find("3 times") == std::string::npos);
  CHECK(desk.events.back().error->message.find("4 times in a row") != std::string::npos);
  desk.serve(5, 4);
  CHECK(desk.submits.back().second.sequence == SequenceId{3});
  desk.tokens(3, {1}, FinishReason::kStop, 4);
  CHECK(desk.router.counts().finished == 3);
}

TEST_CASE("newcomers keep away from a suspect as long as there is another replica") {
  Desk desk(1);
  desk.submit(prompt_of(3, 50));
  desk.submit(prompt_of(3, 50));
  for (std::uint32_t replica = 0; replica < 2; ++replica) {
    desk.start(1, replica);
    desk.tokens(2, {8}, FinishReason::kNone, replica);
    desk.crash(replica);
    if (replica == 0) desk.serve(2, 1);
  }
  desk.serve(4, 2);
  REQUIRE(desk.submits.size() == 6);
  CHECK(desk.submits[4].second.sequence == SequenceId{1});
  const std::uint32_t trial = desk.submits[4].first.actor.index;
  CHECK(desk.submits[5].first != replica_address(trial));
  for (int i = 0; i < 3; ++i) {
    desk.submit(prompt_of(3, 50));
    CHECK(desk.submits.back().first != replica_address(trial));
  }
  desk.tokens(1, {8}, FinishReason::kNone, trial);
  desk.submit(prompt_of(3, 50));
  CHECK(desk.submits.back().first == replica_address(trial));
}

TEST_CASE("under steady traffic a suspect is convicted in company in the end") {
  Desk desk(1);
  desk.submit(prompt_of(3, 50));  // Kills every worker.
  for (std::uint32_t replica = 0; replica < kStrikesInCompanyMax; ++replica) {
    CHECK(desk.router.counts().failed == 0);
    desk.submit(prompt_of(3, 50));
    const std::uint64_t company = replica + 2;
    desk.start(1, replica);
    desk.tokens(company, {8}, FinishReason::kNone, replica);
    desk.crash(replica);
    desk.serve(replica + 2, replica + 1);
  }
  CHECK(desk.router.counts().failed == 1);
  REQUIRE(desk.events.back().error);
  CHECK(desk.events.back().error->message.find("4 times in a row") != std::string::npos);
  CHECK(desk.router.list(99).size() == kStrikesInCompanyMax);
}
