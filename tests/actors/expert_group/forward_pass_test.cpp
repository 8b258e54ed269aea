#include "actors/expert_group/forward_pass.h"

#include <doctest/doctest.h>

#include <cstring>
#include <future>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "model/weights.h"
#include "tests/actors/expert_group/addresses.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr Numerics kNumerics = Numerics::kReference;

/// A small model's experts 0 and 1 of its last layer on a device.
struct Stand {
  std::shared_ptr<const Checkpoint> checkpoint =
      must(Checkpoint::open(source_path("tests/golden/v3")));
  const std::shared_ptr<const ModelSpec> spec{checkpoint, &checkpoint->spec()};
  const std::int32_t layer = spec->num_layers() - 1;
  CpuDevice device{{.index = 0, .kind = "cpu", .memory_total = 0, .threads = 2}};
  ForwardPass pass{spec, kNumerics, device,
                   std::make_shared<ExpertForward>(*spec, device.stream(kNumerics))};

  Stand() {
    ExpertSet::Map experts;
    for (const std::int32_t expert : {0, 1})
      experts[{layer, expert}] = must(load_expert(*checkpoint, kNumerics, layer, expert));
    const auto published =
        std::make_shared<const ExpertSet>(PlacementVersion{1}, std::move(experts));
    device.publish(published, published);
  }

  /// The answers, once the device has nothing more to do for them.
  std::vector<PassAnswer> ask(std::vector<Envelope> questions) {
    struct Answers final : PassNews {
      void answered(std::vector<PassAnswer> more) override {
        for (auto& answer : more) all.push_back(std::move(answer));
        if (all.size() == wanted) complete.set_value();
      }
      std::vector<PassAnswer> all;
      std::size_t wanted = 0;
      std::promise<void> complete;
    };
    const auto answers = std::make_shared<Answers>();
    answers->wanted = questions.size();
    REQUIRE(device.submit([&] { pass.run(questions, answers); }).ok());
    answers->complete.get_future().wait();
    return std::move(answers->all);
  }

  /// Two rows that depend on the call, for these experts.
  Envelope question(std::uint64_t call, std::vector<ExpertPair> pairs) const {
    const auto hidden = static_cast<std::size_t>(spec->hidden);
    auto rows = std::make_shared<Buffer>(2 * ForwardPass::row_bytes(*spec, kNumerics));
    for (std::size_t i = 0; i < 2 * hidden; ++i)
      rows->as<float>()[i] = static_cast<float>((call * 31 + i * 7) % 17) / 17.0f - 0.5f;
    Dispatch dispatch;
    dispatch.call = call;
    dispatch.layer = layer;
    dispatch.rows = 2;
    dispatch.pairs = std::move(pairs);
    dispatch.payload = Payload::of(std::move(rows));
    return {kShard, kGroup.address, message_of(std::move(dispatch))};
  }
};

const PassAnswer& answer_to(const std::vector<PassAnswer>& answers, const Envelope& question) {
  for (const auto& answer : answers)
    if (answer.question.message == question.message) return answer;
  FAIL("a question has no answer");
  return answers.front();
}

std::vector<std::byte> bytes_of(const PassAnswer& answer) {
  const auto* output = std::get_if<ExpertOutput>(answer.answer.get());
  REQUIRE(output);
  return {output->payload.bytes.begin(), output->payload.bytes.end()};
}

}  // namespace

TEST_CASE("a row's output does not depend on what it was grouped with") {
  Stand stand;
  const Envelope first = stand.question(1, {{0, 0}, {0, 1}, {1, 1}});
  const Envelope second = stand.question(2, {{0, 1}, {1, 0}});
  const auto together = stand.ask({first, second});
  REQUIRE(together.size() == 2);
  for (const auto& question : {first, second}) {
    const auto alone = stand.ask({question});
    REQUIRE(alone.size() == 1);
    const auto bytes = bytes_of(answer_to(alone, question));
    CHECK(bytes == bytes_of(answer_to(together, question)));
    CHECK(bytes != std::vector<std::byte>(bytes.size()));
    const auto& output = std::get<ExpertOutput>(*answer_to(alone, question).answer);
    const auto& dispatch = std::get<Dispatch>(*question.message);
    CHECK(output.call == dispatch.call);
    CHECK(output.pairs == dispatch.pairs.size());
    CHECK(bytes.size() == output.pairs * ForwardPass::row_bytes(*stand.spec, kNumerics));
  }
}

TEST_CASE("a question for an absent expert is refused by name; the others are computed") {
  Stand stand;
  const Envelope odd = stand.question(1, {{0, 0}, {0, 3}, {1, 2}});
  const Envelope even = stand.question(2, {{0, 0}, {1, 1}});
  const auto answers = stand.ask({odd, even});
  REQUIRE(answers.size() == 2);
  const auto& refusal = std::get<NotHere>(*answer_to(answers, odd).answer);
  CHECK(refusal.call == 1);
  CHECK(refusal.experts == std::vector<std::int32_t>{3, 2});
  CHECK(refusal.reason == "this device does not hold them");
  CHECK(std::holds_alternative<ExpertOutput>(*answer_to(answers, even).answer));
}

TEST_CASE("a device that has failed, or is being stopped, refuses every question") {
  for (const bool stopped : {false, true}) {
    Stand stand;
    if (stopped)
      stand.device.interrupt();
    else
      stand.device.fail("an uncorrectable error");
    // So many rows that the device's threads share them: there it is interrupted.
    std::vector<Envelope> questions;
    for (std::uint64_t call = 1; call <= 400; ++call)
      questions.push_back(stand.question(call, {{0, 0}, {1, 1}}));
    const auto answers = stand.ask(questions);
    REQUIRE(answers.size() == questions.size());
    for (const auto& answer : answers) {
      const auto* refusal = std::get_if<NotHere>(answer.answer.get());
      REQUIRE(refusal);
      CHECK(refusal->reason ==
            (stopped ? "A pass over experts was given up: the device is being stopped."
                     : "The device has failed: an uncorrectable error."));
    }
    CHECK(stand.device.failed() == (stopped ? "" : "an uncorrectable error"));
  }
}
