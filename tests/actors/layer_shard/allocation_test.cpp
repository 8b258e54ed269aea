// Once warm, a step whose experts are elsewhere allocates nothing but what is sent for it.

#include <algorithm>
#include <semaphore>
#include <type_traits>

#include "actors/layer_shard/forward_compute.h"
#include "tests/actors/layer_shard/stand.h"
#include "tests/allocations.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

void send_again(const Message& message, LayerShard::Effects& effects) {
  if (const auto* dispatch = std::get_if<Dispatch>(&message)) {
    Dispatch again = *dispatch;
    again.payload = Payload::of(
        std::make_shared<Buffer>(Buffer::uninitialized(dispatch->payload.bytes.size())));
    return effects.send(Ref<ExpertGroupInbox>(), std::move(again));
  }
  effects.send(Ref<LayerShardInbox>(), Hidden(std::get<Hidden>(message)));
}

/// How many allocations it takes to send what these effects send.
std::size_t cost_of(const LayerShard::Effects& effects) {
  const std::size_t before = allocations();
  LayerShard::Effects again;
  for (const auto& effect : effects.list())
    std::visit(
        [&]<class E>(const E& e) {
          if constexpr (std::is_same_v<E, Send>)
            send_again(*e.message, again);
          else if constexpr (std::is_same_v<E, BeginStep>)
            again.add(BeginStep{std::make_shared<const Message>(*e.plan), e.hidden});
          else if constexpr (std::is_same_v<E, ResumeStep>)
            again.add(ResumeStep{e.step, {}});
          else if constexpr (!std::is_same_v<E, Tell>)
            again.add(e);
        },
        effect);
  return allocations() - before;
}

/// One turn of the shard, and how many allocations it made beyond what it sends.
template <class Mail>
std::size_t excess(LayerShard& shard, Mail&& mail, LayerShard::Effects& effects) {
  const std::size_t before = allocations();
  turn(shard, std::forward<Mail>(mail), kStart, effects);
  const std::size_t made = allocations() - before;
  const std::size_t sent = cost_of(effects);
  return made - std::min(made, sent);
}

}  // namespace

TEST_CASE("a warm LayerShard allocates nothing but what it sends") {
  LayerShard shard(config(true, false));
  ExpertCut cut = troupe::testing::cut();
  const auto cut_again = [&] {
    cut.answers.clear();
    for (MissingOutput& output : cut.missing) output.call = 0;
  };
  for (std::uint64_t step = 1; step <= 100; ++step) {
    const bool warm = step > 80;  // as many as are remembered
    std::size_t more = 0;
    LayerShard::Effects begun;
    more += excess(shard, plan(step), begun);
    for (int layer = 0; layer < 3; ++layer) {
      LayerShard::Effects asked, computed, resumed;
      cut_again();
      more += excess(shard, StepCut{StepId{step}, std::move(cut)}, asked);
      more += excess(shard, StepComputed{StepId{step}, {}}, computed);
      for (const auto& question : all<Send>(asked)) {
        const Envelope answer = output_of(std::get<Dispatch>(*question.message), question.to.node);
        resumed = {};
        more += excess(shard, answer, resumed);
      }
      const auto resumes = all<ResumeStep>(resumed);
      REQUIRE(resumes.size() == 1);
      cut = resumes[0].cut;
      cut.answers.reserve(4);
    }
    ComputeOutcome done;
    done.done = true;
    LayerShard::Effects passed_on;
    more += excess(shard, StepComputed{StepId{step}, std::move(done)}, passed_on);
    REQUIRE(sent<Hidden>(passed_on).size() == 1);
    if (warm) CHECK(more == 0);
  }
}

TEST_CASE("a warm ForwardCompute allocates nothing but the hidden rows that leave") {
  constexpr Numerics numerics = Numerics::kReference;
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const std::shared_ptr<const ModelSpec> spec(checkpoint, &checkpoint->spec());
  const std::int32_t last = spec->num_layers() - 2;  // no head
  CpuDevice device({.index = 0, .kind = "cpu", .memory_total = 0, .threads = 2});
  ExpertSet::Map here;
  for (std::int32_t layer = 1; layer <= last; ++layer)
    for (std::int32_t e = 0; e < spec->num_experts(); e += 2)
      here[{layer, e}] = must(load_expert(*checkpoint, numerics, layer, e));
  const auto published =
      std::make_shared<const ExpertSet>(PlacementVersion{1}, std::move(here));
  device.publish(published, published);
  ForwardCompute compute(
      {.model = spec,
       .numerics = numerics,
       .weights = must(load_shard(*checkpoint, numerics, 0, last)),
       .cache = must(KvCache::create(*spec, numerics, {0, last, 64, 16})),
       .last_stage = false,
       .cache_memory = {},
       .experts = std::make_shared<ExpertForward>(*spec, device.stream(numerics)),
       .counter = std::make_shared<ExpertCounter>(spec->num_experts())},
      device);

  struct News final : ShardNews {
    void cut(StepId, ExpertCut found) override { asked = std::move(found); }
    void found(StepId) override { FAIL("there are no other ranks"); }
    void computed(StepId, ComputeOutcome found) override {
      made = allocations() - before;
      outcome = std::move(found);
      told.release();
    }
    ExpertCut asked;
    ComputeOutcome outcome;
    std::size_t before = 0, made = 0;
    std::binary_semaphore told{0};
  };
  const auto news = std::make_shared<News>();
  const auto run = [&](const auto& work) {
    REQUIRE(device
                .submit([&] {
                  news->before = allocations();
                  work();
                })
                .ok());
    news->told.acquire();
    REQUIRE(!news->outcome.error);
    return news->made;
  };
  StepPlan plan;
  for (std::int32_t i = 0; i < 4; ++i) {
    StepSequence s;
    s.tokens = {i + 5};
    s.block_table = {i};
    plan.body.sequences.push_back(s);
  }
  // The device's queue grows a page now and then, which is not the step's.
  std::vector<std::size_t> least(static_cast<std::size_t>(last) + 1, 1000);
  for (std::uint64_t step = 1; step <= 8; ++step) {
    plan.body.step = StepId{step};
    const MessagePtr message = message_of(plan);
    std::size_t part = 0;
    least[part] = std::min(least[part], run([&] { compute.begin({message, {}}, news); }));
    while (!news->outcome.done) {
      ResumeStep resume{StepId{step}, std::move(news->asked)};
      for (MissingOutput& output : resume.cut.missing) output.call = 1;
      const std::size_t bytes = resume.cut.missing.size() * resume.cut.row_bytes;
      resume.cut.answers.push_back({1, Payload::of(std::make_shared<Buffer>(bytes))});
      REQUIRE(++part < least.size());
      least[part] = std::min(least[part], run([&] { compute.resume(std::move(resume), news); }));
    }
    std::binary_semaphore released{0};
    REQUIRE(device
                .submit([&] {
                  compute.release(StepId{step});
                  released.release();
                })
                .ok());
    released.acquire();
    REQUIRE(part == static_cast<std::size_t>(last));
  }
  for (std::size_t part = 0; part < least.size(); ++part) {
    CAPTURE(part);
    CHECK(least[part] == (part + 1 < least.size() ? 0 : 1));
  }
}
