// Once warm, a group allocates nothing but its answers.

#include <algorithm>
#include <semaphore>

#include "actors/expert_group/expert_group.h"
#include "actors/expert_group/forward_pass.h"
#include "model/weights.h"
#include "tests/actors/effects.h"
#include "tests/actors/expert_group/addresses.h"
#include "tests/allocations.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr Numerics kExact = Numerics::kReference;

Envelope asked(std::uint64_t call, std::int32_t layer, std::size_t row_bytes) {
  Dispatch dispatch;
  dispatch.call = call;
  dispatch.layer = layer;
  dispatch.rows = 2;
  dispatch.pairs = {{0, 0}, {0, 1}, {1, 1}};
  dispatch.payload = Payload::of(std::make_shared<Buffer>(2 * row_bytes));
  return {kShard, kGroup.address, message_of(std::move(dispatch))};
}

}  // namespace

TEST_CASE("a warm ExpertGroup allocates nothing but what it sends") {
  constexpr std::size_t row_bytes = 8;
  ExpertGroup group(row_bytes);
  for (std::uint64_t round = 0; round < 4; ++round) {
    std::vector<Envelope> questions;
    PassEnded ended;
    for (std::uint64_t i = 0; i < 3; ++i) {
      questions.push_back(asked(10 * round + i, 1, row_bytes));
      ended.answers.push_back({questions.back(), message_of(ExpertOutput{10 * round + i, 3, {}})});
    }
    const PassEnded same = ended;
    std::size_t before = allocations();
    ExpertGroup::Effects effects;
    for (const auto& question : questions) turn(group, question, TimePoint{}, effects);
    turn(group, std::move(ended), TimePoint{}, effects);
    const std::size_t made = allocations() - before;
    REQUIRE(all<AskPass>(effects).size() == 3);
    REQUIRE(sent<ExpertOutput>(effects).size() == 3);

    before = allocations();
    ExpertGroup::Effects again;
    for (const auto& question : questions) again.add(AskPass{question});
    for (const auto& found : same.answers) again.send(Ref<LayerShardInbox>(), found.answer);
    const std::size_t sending = allocations() - before;
    if (round > 0) CHECK(made == sending);
  }
}

TEST_CASE("a warm ForwardPass allocates nothing but its answers") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const std::shared_ptr<const ModelSpec> spec(checkpoint, &checkpoint->spec());
  const std::int32_t last = spec->num_layers() - 1;
  CpuDevice device({.index = 0, .kind = "cpu", .memory_total = 0, .threads = 2});
  ExpertSet::Map experts;
  for (const std::int32_t layer : {last - 1, last})
    for (const std::int32_t expert : {0, 1})
      experts[{layer, expert}] = must(load_expert(*checkpoint, kExact, layer, expert));
  const auto published =
      std::make_shared<const ExpertSet>(PlacementVersion{1}, std::move(experts));
  device.publish(published, published);
  ForwardPass pass(spec, kExact, device,
                   std::make_shared<ExpertForward>(*spec, device.stream(kExact)));

  struct News final : PassNews {
    void answered(std::vector<PassAnswer> answers) override {
      count += answers.size();
      if (count < 4) return;
      made = allocations() - before;
      told.release();
    }
    std::size_t count = 0, before = 0, made = 0;
    std::binary_semaphore told{0};
  };
  const auto news = std::make_shared<News>();
  // The device's queue grows a page now and then, which is not the group's.
  std::size_t least = 1000;
  for (std::uint64_t round = 0; round < 8; ++round) {
    std::vector<Envelope> questions;
    for (std::uint64_t i = 0; i < 4; ++i)
      questions.push_back(
          asked(i, i % 2 == 0 ? last : last - 1, ForwardPass::row_bytes(*spec, kExact)));
    REQUIRE(device
                .submit([&] {
                  news->count = 0;
                  news->before = allocations();
                  pass.run(questions, news);
                })
                .ok());
    news->told.acquire();
    least = std::min(least, news->made);
  }
  // The answers of each layer, and for each question the message and its payload.
  CHECK(least == 2 + 4 * 2);
}
