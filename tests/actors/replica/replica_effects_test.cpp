#include <doctest/doctest.h>

#include <string>
#include <vector>

#include "actors/replica/replica_hands.h"
#include "tests/actors/replica/stage.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

/// What a turn did, in words, in its order.
std::vector<std::string> deeds(const Replica::Effects& effects) {
  std::vector<std::string> deeds;
  for (const auto& effect : effects.list()) {
    if (std::holds_alternative<ReportChanged>(effect)) {
      deeds.emplace_back("report");
    } else {
      const auto& message = *std::get<Send>(effect).message;
      deeds.emplace_back(std::holds_alternative<StepAbort>(message)        ? "abort"
                         : std::holds_alternative<StepPlan>(message)       ? "plan"
                         : std::holds_alternative<SequenceEvents>(message) ? "events"
                                                                           : "other");
    }
  }
  return deeds;
}

Envelope from(const Address& who, Message message) {
  return {who, kSelf, std::make_shared<const Message>(std::move(message))};
}

}  // namespace

TEST_CASE("plans go out first, then the report, then what the Router is told") {
  Replica replica(small());
  Replica::Effects effects;
  turn(replica, from(kRouter, request(1, 9, 6)), TimePoint{}, effects);
  CHECK(deeds(effects) == std::vector<std::string>{"plan", "plan", "report", "events"});
}

TEST_CASE("shards hear of an abort before any later plan") {
  ReplicaConfig config = small();
  config.stages = 2;
  Replica replica(config);
  Replica::Effects begun, failed;
  turn(replica, from(kRouter, request(1, 9, 6)), TimePoint{}, begun);
  const StepId step = sent<StepPlan>(begun).at(0).body.step;
  turn(replica, from(kRouter, request(2, 9, 6)), TimePoint{}, begun);
  // An error that does not pass ends the first sequence, and the third begins in the same turn.
  turn(replica, from(kRouter, request(3, 9, 6)), TimePoint{}, begun);
  turn(replica, from(kLastShard, StepFailed{0, step, internal_error("odd")}), TimePoint{}, failed);
  CHECK(deeds(failed) ==
        std::vector<std::string>{"abort", "abort", "plan", "plan", "report", "events"});
}

TEST_CASE("a report is given on the first turn, and then only when it changes") {
  Replica replica(small());
  Replica::Effects first, second;
  wake(replica, TimePoint{}, first);
  REQUIRE(all<ReportChanged>(first).size() == 1);
  CHECK(all<ReportChanged>(first)[0].report.kv_blocks_total == 16);
  wake(replica, TimePoint{}, second);
  CHECK(second.list().empty());

  Stage stage(small());
  stage.send(request(1, 9, 3));
  stage.run();
  REQUIRE(stage.reports.size() >= 2);
  CHECK(stage.reports.front().running == 1);
  CHECK(stage.reports.front().kv_blocks_used == 3);
  CHECK(stage.reports.back().running == 0);
  CHECK(stage.reports.back().kv_blocks_used == 0);
}

TEST_CASE("the hands keep the newest report") {
  const auto slot = std::make_shared<ReportSlot>();
  ReplicaHands hands(slot);
  const Replica replica(small());
  CHECK(slot->newest().kv_blocks_total == 0);
  for (std::uint32_t running : {3u, 1u}) {
    ReplicaReport report;
    report.running = running;
    hands.carry_out(ReportChanged{report}, replica);
    CHECK(slot->newest().running == running);
  }
}
