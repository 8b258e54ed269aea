#include "actors/layer_shard/shard_hands.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "actors/device/cpu_device.h"
#include "actors/layer_shard/layer_shard.h"
#include "tests/actors/device/stand.h"
#include "tests/actors/layer_shard/stand.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

using Log = std::vector<std::string>;

std::string numbered(const std::string& what, StepId step) {
  return what + " " + std::to_string(step.value);
}

/// Writes down what it is asked for. Every step is cut once.
class LoggingCompute final : public ShardCompute {
 public:
  LoggingCompute(std::shared_ptr<Log> log, std::shared_ptr<MailQueue> agent)
      : log_(std::move(log)), agent_(std::move(agent)) {}
  ~LoggingCompute() override { log_->push_back(agent_->empty() ? "freed" : "freed too late"); }

  void use(std::shared_ptr<Collective>) override { log_->push_back("use"); }
  void deal(std::shared_ptr<const ExpertRanks>) override {}
  bool hears_ranks(TimePoint) const override { return true; }
  void begin(const BeginStep& begin, const std::shared_ptr<ShardNews>& news) override {
    const StepId step = std::get<StepPlan>(*begin.plan).body.step;
    log_->push_back(numbered("begin", step));
    news->cut(step, cut());
    news->computed(step, {});
  }
  void resume(ResumeStep resume, const std::shared_ptr<ShardNews>& news) override {
    log_->push_back(numbered("resume", resume.step));
    ComputeOutcome outcome;
    outcome.done = true;
    news->computed(resume.step, std::move(outcome));
  }
  void release(StepId step) override { log_->push_back(numbered("release", step)); }
  void give_up(StepId step) override { log_->push_back(numbered("give up", step)); }
  void end() override { log_->push_back("end"); }

 private:
  std::shared_ptr<Log> log_;
  std::shared_ptr<MailQueue> agent_;  // hears of the shard's end
};

/// Hands, the shard's letter box and its agent's.
struct Desk {
  Desk(TestHost& to, Device& device)
      : host(to),
        news(host.box(config().self.address)),
        agent_news(host.box(agent.address)),
        hands(std::make_unique<ShardHands>(host, config(), device,
                                           std::make_unique<LoggingCompute>(log, agent_news),
                                           host.life_of(config().self.address, agent))) {}

  void begin(std::uint64_t step) { hands->carry_out(BeginStep{plan(step).message, {}}, shard); }

  const Ref<NodeAgentInbox> agent{NodeId{1}, Incarnation{10}};
  TestHost& host;
  std::shared_ptr<Log> log = std::make_shared<Log>();
  std::shared_ptr<MailQueue> news, agent_news;
  const LayerShard shard{config()};
  std::unique_ptr<ShardHands> hands;
};

}  // namespace

TEST_CASE("a job's news come back as messages, the cut before the outcome") {
  TestHost host;  // outlives the device, whose jobs tell
  ManualDevice device;
  Desk desk(host, device);
  desk.begin(1);
  CHECK(desk.log->empty());  // nothing is computed in the actor's turn
  device.run_all();
  const auto news = desk.news->take();
  REQUIRE(news.size() == 2);
  const auto* found = local<LayerShardInbox, StepCut>(news[0]);
  REQUIRE(found);
  CHECK(found->step == StepId{1});
  CHECK(found->cut.missing.size() == 3);
  const auto* computed = local<LayerShardInbox, StepComputed>(news[1]);
  REQUIRE(computed);
  CHECK(computed->step == StepId{1});
  CHECK(!computed->outcome.done);

  desk.hands->carry_out(ResumeStep{StepId{1}, {}}, desk.shard);
  desk.hands->carry_out(GiveUpStep{StepId{1}}, desk.shard);
  desk.hands->carry_out(ReleaseStep{StepId{1}}, desk.shard);
  device.run_all();
  const auto end = desk.news->take();
  REQUIRE(end.size() == 1);
  REQUIRE(local<LayerShardInbox, StepComputed>(end[0]));
  CHECK(local<LayerShardInbox, StepComputed>(end[0])->outcome.done);
  CHECK(*desk.log == Log{"begin 1", "resume 1", "give up 1", "release 1"});
}

TEST_CASE("a job that the device does not take ends as a failed one") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  device.refuses = true;
  desk.begin(1);
  const auto news = desk.news->take();
  REQUIRE(news.size() == 1);
  const auto* computed = local<LayerShardInbox, StepComputed>(news[0]);
  REQUIRE(computed);
  REQUIRE(computed->outcome.error);
  CHECK(computed->outcome.error->code == ErrorCode::kResourceExhausted);
  CHECK(desk.log->empty());
}

TEST_CASE("the compute is freed in the device's queue after the last job, and then the life ends") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  desk.begin(1);
  desk.hands.reset();
  CHECK(desk.log->empty());
  REQUIRE(device.run_one());
  CHECK(*desk.log == Log{"begin 1"});
  CHECK(desk.agent_news->take().empty());
  REQUIRE(device.run_one());
  CHECK(*desk.log == Log{"begin 1", "end", "freed"});
  const auto ended = desk.agent_news->take();
  REQUIRE(ended.size() == 1);
  REQUIRE(local<NodeAgentInbox, Ended>(ended[0]));
  CHECK(local<NodeAgentInbox, Ended>(ended[0])->actor == config().self.address);
  CHECK(device.jobs() == 0);
}

TEST_CASE("a device whose queue is full takes what ends a step, and the compute's end") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  desk.begin(1);
  device.refuses = true;
  desk.hands->carry_out(GiveUpStep{StepId{1}}, desk.shard);
  desk.hands->carry_out(ReleaseStep{StepId{1}}, desk.shard);
  desk.hands.reset();
  CHECK(desk.log->empty());
  CHECK(desk.agent_news->take().empty());
  device.run_all();
  CHECK(*desk.log == Log{"begin 1", "give up 1", "release 1", "end", "freed"});
  CHECK(desk.agent_news->take().size() == 1);
}

TEST_CASE("steps go their way through the shell, on a device with a thread") {
  constexpr std::uint64_t kSteps = 50;
  TestHost host;
  CpuDevice device({.index = 0, .kind = "cpu", .memory_total = 0, .threads = 1});
  Desk desk(host, device);
  const auto replica = desk.host.box(kReplicaAddress);
  const auto experts = desk.host.box({NodeId{2}, Incarnation{20}, {ActorKind::kExpertGroup, 0}});
  LayerShardConfig own = config();
  own.routes = [] {
    Placement all_on_one = placement();
    all_on_one.experts = {{1, {{1, kFirst}, {2, kFirst}}}};
    return std::make_shared<const ExpertRoutes>(all_on_one);
  }();
  auto shell = std::make_unique<Shell<LayerShard, ShardHands>>(
      desk.host, own.self.address, LayerShard(own), std::move(*desk.hands));
  (void)shell->on_wake();
  for (std::uint64_t step = 1; step <= kSteps; ++step) {
    (void)shell->on(Mail(plan(step)));
    for (int i = 0; i < 2; ++i) {  // the cut, and the end of the job
      auto news = desk.news->next();
      REQUIRE(news);
      (void)shell->on(std::move(*news));
    }
    const auto question = experts->next();
    REQUIRE(question);
    const auto& dispatch = std::get<Dispatch>(*question->envelope.message);
    CHECK(dispatch.pairs.size() == 3);
    (void)shell->on(Mail(output_of(dispatch, NodeId{2})));
    auto computed = desk.news->next();
    REQUIRE(computed);
    (void)shell->on(std::move(*computed));
    const auto result = replica->next();
    REQUIRE(result);
    CHECK(std::get<StepResult>(*result->envelope.message).step == StepId{step});
  }
  CHECK(shell->machine().steps() == 0);
  CHECK(desk.host.violation == "");
  shell.reset();
  REQUIRE(desk.agent_news->next());
  CHECK(desk.log->size() == 3 * kSteps + 2);  // begun, resumed, released; ended and freed
  CHECK(desk.log->back() == "freed");
}

TEST_CASE("a step goes on, the Replica hears, as long as the device makes progress") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  const auto replica = host.box(kReplicaAddress);
  const SayProgress say{config().replica, {0, StepId{4}}};
  desk.hands->carry_out(SayProgress{say}, desk.shard);
  const auto told = replica->take();
  REQUIRE(told.size() == 1);
  CHECK(told[0].envelope.from == config().self.address);
  CHECK(std::get<StepProgress>(*told[0].envelope.message).step == StepId{4});
  device.stands_still = true;
  desk.hands->carry_out(SayProgress{say}, desk.shard);
  CHECK(replica->empty());
}
