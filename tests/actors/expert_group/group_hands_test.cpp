#include "actors/expert_group/group_hands.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "actors/device/cpu_device.h"
#include "tests/actors/device/stand.h"
#include "tests/actors/expert_group/addresses.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::size_t kGroupRowBytes = 8;
const Ref<NodeAgentInbox> kAgent{NodeId{1}, Incarnation{10}};

Envelope question(std::uint64_t call) {
  Dispatch dispatch;
  dispatch.call = call;
  dispatch.rows = 1;
  dispatch.pairs = {{0, 4}};
  dispatch.payload = Payload::of(std::make_shared<Buffer>(kGroupRowBytes));
  return {kShard, kGroup.address, message_of(std::move(dispatch))};
}

std::uint64_t call_of(const Envelope& asked) { return std::get<Dispatch>(*asked.message).call; }

/// The calls of each pass, and whether the pass is gone.
struct Log {
  std::vector<std::vector<std::uint64_t>> passes;
  std::function<void()> meanwhile;  ///< while a pass runs
  bool freed = false;               ///< before the life ended
};

class LoggingPass final : public ExpertPass {
 public:
  LoggingPass(std::shared_ptr<Log> log, std::shared_ptr<MailQueue> agent)
      : log_(std::move(log)), agent_(std::move(agent)) {}
  ~LoggingPass() override { log_->freed = agent_->empty(); }

  void run(std::span<Envelope> questions, const std::shared_ptr<PassNews>& news) override {
    auto& calls = log_->passes.emplace_back();
    std::vector<PassAnswer> answers;
    for (auto& asked : questions) {
      calls.push_back(call_of(asked));
      const MessagePtr answer = message_of(ExpertOutput{call_of(asked), 1, {}});
      answers.push_back({std::move(asked), answer});
    }
    if (auto work = std::exchange(log_->meanwhile, {})) work();
    news->answered(std::move(answers));
  }

 private:
  std::shared_ptr<Log> log_;
  std::shared_ptr<MailQueue> agent_;  // hears of the group's end
};

/// Hands, the group's letter box and its agent's. The host outlives the device, whose jobs tell.
struct Desk {
  Desk(TestHost& to, Device& device)
      : host(to),
        news(host.box(kGroup.address)),
        agent_news(host.box(kAgent.address)),
        hands(std::make_unique<GroupHands>(host, kGroup, device,
                                           std::make_unique<LoggingPass>(log, agent_news),
                                           host.life_of(kGroup.address, kAgent))) {}

  void ask(std::uint64_t call) { hands->carry_out(AskPass{question(call)}, group); }

  TestHost& host;
  std::shared_ptr<Log> log = std::make_shared<Log>();
  std::shared_ptr<MailQueue> news, agent_news;
  const ExpertGroup group{kGroupRowBytes};
  std::unique_ptr<GroupHands> hands;
};

using Calls = std::vector<std::uint64_t>;

/// The calls that a PassEnded answers.
Calls answered(const Mail& mail) {
  const auto* ended = local<ExpertGroupInbox, PassEnded>(mail);
  REQUIRE(ended);
  Calls calls;
  for (const auto& answer : ended->answers) calls.push_back(call_of(answer.question));
  return calls;
}

}  // namespace

TEST_CASE("everything that gathers while the device is busy is one pass") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  for (const std::uint64_t call : {1u, 2u, 3u}) desk.ask(call);
  CHECK(device.jobs() == 1);
  device.run_all();
  CHECK(desk.log->passes == std::vector<Calls>{{1, 2, 3}});
  const auto news = desk.news->take();
  REQUIRE(news.size() == 1);
  CHECK(answered(news[0]) == Calls{1, 2, 3});
}

TEST_CASE("what comes while a pass runs is the next one") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  desk.log->meanwhile = [&] {
    desk.ask(2);
    desk.ask(3);
  };
  desk.ask(1);
  REQUIRE(device.run_one());
  CHECK(device.jobs() == 1);
  CHECK(desk.log->passes == std::vector<Calls>{{1}});
  device.run_all();
  CHECK(desk.log->passes == std::vector<Calls>{{1}, {2, 3}});
  CHECK(desk.news->take().size() == 2);
}

TEST_CASE("a question that the device does not take is answered with NotHere") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  device.refuses = true;
  desk.ask(1);
  auto news = desk.news->take();
  REQUIRE(news.size() == 1);
  CHECK(answered(news[0]) == Calls{1});
  const auto* ended = local<ExpertGroupInbox, PassEnded>(news[0]);
  const auto& refusal = std::get<NotHere>(*ended->answers[0].answer);
  CHECK(refusal.call == 1);
  CHECK(refusal.reason == "the queue is full");
  device.refuses = false;  // the next one has its chance
  desk.ask(2);
  device.run_all();
  CHECK(desk.log->passes == std::vector<Calls>{{2}});
}

TEST_CASE("the pass is freed in the device's queue after the last job, and then the life ends") {
  for (const bool refuses : {false, true}) {
    TestHost host;
    ManualDevice device;
    Desk desk(host, device);
    desk.ask(1);
    device.refuses = refuses;
    desk.hands.reset();
    CHECK(!desk.log->freed);
    CHECK(desk.agent_news->take().empty());
    device.run_all();
    CHECK(desk.log->passes == std::vector<Calls>{{1}});
    CHECK(desk.log->freed);
    const auto ended = desk.agent_news->take();
    REQUIRE(ended.size() == 1);
    REQUIRE(local<NodeAgentInbox, Ended>(ended[0]));
    CHECK(local<NodeAgentInbox, Ended>(ended[0])->actor == kGroup.address);
  }
}

TEST_CASE("a device that takes nothing frees the pass at once") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  device.refuses = true;
  desk.hands.reset();
  CHECK(desk.log->freed);
  CHECK(desk.agent_news->take().size() == 1);
}

TEST_CASE("every question is answered once while a device's thread takes them") {
  constexpr std::uint64_t kQuestions = 2000;
  TestHost host;
  CpuDevice device({.index = 0, .kind = "cpu", .memory_total = 0, .threads = 1});
  Desk desk(host, device);
  for (std::uint64_t call = 1; call <= kQuestions; ++call) desk.ask(call);
  std::set<std::uint64_t> seen;
  while (seen.size() < kQuestions) {
    const auto news = desk.news->next();
    REQUIRE(news);
    for (const std::uint64_t call : answered(*news)) CHECK(seen.insert(call).second);
  }
  desk.hands.reset();
  REQUIRE(desk.agent_news->next());
  CHECK(desk.log->freed);
}

TEST_CASE("who waits for an answer hears of it as long as the device makes progress") {
  TestHost host;
  ManualDevice device;
  Desk desk(host, device);
  const auto shard = host.box(kShard);
  const SayAtWork say{{{kShard, {7}}, {kShard, {8}}}};
  desk.hands->carry_out(SayAtWork{say}, desk.group);
  const auto told = shard->take();
  REQUIRE(told.size() == 2);
  CHECK(told[0].envelope.from == kGroup.address);
  CHECK(std::get<ExpertProgress>(*told[1].envelope.message).call == 8);
  device.stands_still = true;
  desk.hands->carry_out(SayAtWork{say}, desk.group);
  CHECK(shard->empty());
}
