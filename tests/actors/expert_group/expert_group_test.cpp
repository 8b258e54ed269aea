#include "actors/expert_group/expert_group.h"

#include <doctest/doctest.h>

#include <memory>
#include <utility>
#include <vector>

#include "actors/base/undeliverable.h"
#include "runtime/limits.h"
#include "tests/actors/effects.h"
#include "tests/actors/expert_group/addresses.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::size_t kRowBytes = 8;

/// A question of two rows with three pairs.
Dispatch fitting(std::uint64_t call) {
  Dispatch dispatch;
  dispatch.call = call;
  dispatch.layer = 1;
  dispatch.rows = 2;
  dispatch.pairs = {{0, 4}, {1, 4}, {1, 5}};
  dispatch.payload = Payload::of(std::make_shared<Buffer>(2 * kRowBytes));
  return dispatch;
}

template <class T>
Envelope from_shard(T message) {
  return {kShard, kGroup.address, message_of(std::move(message))};
}

/// One turn; all invariants hold after it.
template <class Mail>
ExpertGroup::Effects play(ExpertGroup& group, Mail&& mail) {
  ExpertGroup::Effects effects;
  turn(group, std::forward<Mail>(mail), TimePoint{}, effects);
  CHECK(group.violation() == "");
  return effects;
}

/// The one NotHere that goes to the shard.
NotHere refusal(const ExpertGroup::Effects& effects) {
  CHECK(effects.list().size() == 1);
  const auto refusals = sent<NotHere>(effects);
  REQUIRE(refusals.size() == 1);
  CHECK(all<Send>(effects)[0].to == kShard);
  return refusals[0];
}

}  // namespace

TEST_CASE("a question that fits is handed on as it came, and answered when its pass has ended") {
  ExpertGroup group(kRowBytes);
  const Envelope question = from_shard(fitting(7));
  const auto asked = all<AskPass>(play(group, question));
  REQUIRE(asked.size() == 1);
  CHECK(asked[0].question.message == question.message);
  CHECK(asked[0].question.from == kShard);

  const MessagePtr answer = message_of(ExpertOutput{7, 3, {}});
  PassEnded ended;
  ended.answers.push_back({question, answer});
  ended.answers.push_back(not_here(from_shard(fitting(8)), {5}, "gone"));
  (void)play(group, from_shard(fitting(8)));
  const auto effects = play(group, std::move(ended));
  const auto sends = all<Send>(effects);
  REQUIRE(sends.size() == 2);
  CHECK(sends[0].to == kShard);
  CHECK(sends[0].message == answer);  // by pointer
  const auto& refused = std::get<NotHere>(*sends[1].message);
  CHECK(refused.call == 8);
  CHECK(refused.experts == std::vector<std::int32_t>{5});
  CHECK(refused.reason == "gone");
}

TEST_CASE("a question that does not fit the model is answered at once") {
  ExpertGroup group(kRowBytes);
  Dispatch too_short = fitting(1), stray_row = fitting(2), too_many = fitting(3);
  too_short.payload = Payload::of(std::make_shared<Buffer>(2 * kRowBytes - 1));
  stray_row.pairs.push_back({2, 4});
  too_many.pairs.assign(2 * static_cast<std::size_t>(limits::kTopKMax) + 1, {0, 4});
  for (const auto& dispatch : {too_short, stray_row, too_many}) {
    const NotHere answer = refusal(play(group, from_shard(dispatch)));
    CHECK(answer.call == dispatch.call);
    CHECK(answer.experts.empty());
    CHECK(answer.reason == "the rows do not have this model's size");
  }
  too_many.pairs.pop_back();
  CHECK(all<AskPass>(play(group, from_shard(too_many))).size() == 1);
}

TEST_CASE("what waits is bounded; a pass that ends makes room") {
  ExpertGroup group(kRowBytes);
  std::uint64_t call = 0;
  while (call < limits::kDispatchesWaitingMax)
    REQUIRE(all<AskPass>(play(group, from_shard(fitting(++call)))).size() == 1);
  CHECK(refusal(play(group, from_shard(fitting(++call)))).reason == "too many questions wait");
  PassEnded ended;
  for (std::uint64_t answered = 1; answered <= 2; ++answered)
    ended.answers.push_back({from_shard(fitting(answered)), message_of(ExpertOutput{1, 3, {}})});
  (void)play(group, std::move(ended));
  for (int i = 0; i < 2; ++i)
    CHECK(all<AskPass>(play(group, from_shard(fitting(++call)))).size() == 1);
  CHECK(refusal(play(group, from_shard(fitting(++call)))).reason == "too many questions wait");
}

TEST_CASE("a question that is being answered is not taken twice") {
  ExpertGroup group(kRowBytes);
  CHECK(all<AskPass>(play(group, from_shard(fitting(1)))).size() == 1);
  CHECK(refusal(play(group, from_shard(fitting(1)))).call == 1);
}

TEST_CASE("those whose answers take long hear about once a second that they are worked on") {
  ExpertGroup group(kRowBytes);
  const auto play_wake = [&](TimePoint now) {
    ExpertGroup::Effects effects;
    wake(group, now, effects);
    CHECK(group.violation() == "");
    return effects;
  };
  CHECK(play(group, from_shard(fitting(1))).wake() == TimePoint{} + limits::kProgressEvery);
  (void)play(group, from_shard(fitting(2)));
  CHECK(play_wake(TimePoint{} + limits::kProgressEvery / 2).list().empty());
  for (int second = 1; second <= 3; ++second) {
    const auto effects = play_wake(TimePoint{} + second * limits::kProgressEvery);
    const auto said = all<SayAtWork>(effects);
    REQUIRE(said.size() == 1);
    REQUIRE(said[0].askers.size() == 2);
    CHECK(said[0].askers[0].shard == kShard);
    CHECK(said[0].askers[1].progress.call == 2);
    CHECK(effects.wake() == TimePoint{} + (second + 1) * limits::kProgressEvery);
  }
  PassEnded ended;
  for (const std::uint64_t call : {1, 2})
    ended.answers.push_back({from_shard(fitting(call)), message_of(ExpertOutput{call, 3, {}})});
  CHECK(!play(group, std::move(ended)).wake());
  CHECK(play_wake(TimePoint{} + 9 * limits::kProgressEvery).list().empty());
}

TEST_CASE("an answer that does not arrive becomes NotHere, once") {
  ExpertGroup group(kRowBytes);
  const auto lost = [](MessagePtr answer) {
    const Envelope unsent{kGroup.address, kShard, std::move(answer)};
    return from_shard(undeliverable(unsent, resource_exhausted("too long")));
  };
  const NotHere told = refusal(play(group, lost(message_of(ExpertOutput{7, 3, {}}))));
  CHECK(told.call == 7);
  CHECK(told.reason == "too long");
  CHECK(play(group, lost(message_of(NotHere{7, {}, "too long"}))).list().empty());
}

TEST_CASE("more answers than questions are noticed") {
  ExpertGroup group(kRowBytes);
  ExpertGroup::Effects effects;
  PassEnded ended;
  ended.answers.push_back(not_here(from_shard(fitting(1)), {}, "odd"));
  turn(group, std::move(ended), TimePoint{}, effects);
  CHECK(group.violation() != "");
}
