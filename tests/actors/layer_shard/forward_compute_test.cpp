#include "actors/layer_shard/forward_compute.h"

#include <doctest/doctest.h>

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/model/local_model.h"
#include "tests/source_path.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr Numerics kNumerics = Numerics::kReference;
constexpr std::uint64_t kSteps = 6;

/// Replicas of a small model on one device that holds all of its experts. Each begins its next step
/// when one has ended.
class Replicas {
 public:
  Replicas(std::size_t replicas, std::int32_t sequences, const std::string& model = "v3")
      : sequences_(sequences),
        checkpoint_(must(Checkpoint::open(source_path("tests/golden/" + model)))),
        spec_(checkpoint_, &checkpoint_->spec()) {
    ExpertSet::Map experts;
    for (std::int32_t layer = 0; layer < spec_->num_layers(); ++layer)
      if (spec_->layers[static_cast<std::size_t>(layer)].has_experts())
        for (std::int32_t e = 0; e < spec_->num_experts(); ++e)
          experts[{layer, e}] = must(load_expert(*checkpoint_, kNumerics, layer, e));
    const auto published =
        std::make_shared<const ExpertSet>(PlacementVersion{1}, std::move(experts));
    device_.publish(published, published);
    const std::int32_t last = spec_->num_layers() - 1;
    const auto weights = must(load_shard(*checkpoint_, kNumerics, 0, last));
    const auto forward = std::make_shared<ExpertForward>(*spec_, device_.stream(kNumerics));
    for (std::size_t i = 0; i < replicas; ++i) {
      ForwardCompute::Options options{
          .model = spec_,
          .numerics = kNumerics,
          .weights = weights,
          .cache = must(KvCache::create(*spec_, kNumerics, {0, last, 64, 16})),
          .cache_memory = {},
          .experts = forward};
      computes_.push_back(std::make_unique<ForwardCompute>(std::move(options), device_));
    }
  }

  /// How a step of the first replica ends after whose beginning `then` is a job, and how many
  /// experts' weights it has read.
  std::pair<ComputeOutcome, std::uint64_t> outcome_if(
      const std::function<void(ForwardCompute&, Device&)>& then) {
    const auto news = std::make_shared<OneStep>();
    std::promise<void> both_asked;
    REQUIRE(device_.submit([asked = both_asked.get_future().share()] { asked.wait(); }).ok());
    REQUIRE(device_.submit([&] { computes_[0]->begin({plan(0, 1), {}}, news); }).ok());
    REQUIRE(device_.submit([&] { then(*computes_[0], device_); }).ok());
    both_asked.set_value();
    ComputeOutcome outcome = news->outcome.get_future().get();
    return {std::move(outcome), device_.experts_read()};
  }

  /// Whether nothing of a step is left when its replica ends while it waits.
  bool ends_with_its_steps() {
    std::promise<bool> gone;
    REQUIRE(device_
                .submit([&] {
                  auto news = std::make_shared<OneStep>();
                  const std::weak_ptr<OneStep> kept = news;
                  computes_[0]->begin({plan(0, 1), {}}, news);
                  news.reset();
                  const bool waited = !kept.expired();
                  computes_[0]->end();
                  gone.set_value(waited && kept.expired());
                })
                .ok());
    return gone.get_future().get();
  }

  /// How many experts' weights all steps read. Replica i has sequences i * sequences and on.
  std::uint64_t run() {
    std::promise<void> all_asked;
    REQUIRE(device_.submit([asked = all_asked.get_future().share()] { asked.wait(); }).ok());
    std::vector<std::future<void>> ends;
    for (std::size_t i = 0; i < computes_.size(); ++i) {
      news_.push_back(std::make_shared<News>(*this, i));
      ends.push_back(news_.back()->end.get_future());
      news_.back()->begin();
    }
    all_asked.set_value();
    for (auto& end : ends) end.wait();
    return device_.experts_read();
  }

  /// Which of two steps of the first replica ends first, whose jobs come one behind the other, and
  /// what each finds.
  struct Ends {
    std::vector<std::uint64_t> order;
    std::map<std::uint64_t, std::vector<float>> logprobs;
  };
  Ends two_steps(bool express) {
    const auto news = std::make_shared<Steps>();
    std::promise<void> both_asked;
    REQUIRE(device_.submit([asked = both_asked.get_future().share()] { asked.wait(); }).ok());
    for (const std::uint64_t step : {1, 2}) {
      StepPlan plan = std::get<StepPlan>(*this->plan(0, 1));
      plan.body.step = StepId{step};
      plan.body.express = express && step == 2;
      for (StepSequence& s : plan.body.sequences)
        s.block_table = {s.block_table[0] + static_cast<std::int32_t>(step) * sequences_};
      REQUIRE(device_
                  .submit([this, news, waits = plan.body.express ? device_.note_express() : nullptr,
                           message = message_of(std::move(plan))]() mutable {
                    waits = nullptr;
                    computes_[0]->begin({message, {}}, news);
                  })
                  .ok());
    }
    both_asked.set_value();
    news->both.get_future().wait();
    return news->ends;
  }

  /// Of all steps and sequences.
  std::vector<float> logprobs(std::size_t replica) const { return news_[replica]->logprobs; }

 private:
  struct OneStep final : ShardNews {
    void cut(StepId, ExpertCut) override { FAIL("all experts are here"); }
    void found(StepId) override { FAIL("there are no other ranks"); }
    void computed(StepId, ComputeOutcome found) override { outcome.set_value(std::move(found)); }
    std::promise<ComputeOutcome> outcome;
  };

  struct Steps final : ShardNews {
    void cut(StepId, ExpertCut) override { FAIL("all experts are here"); }
    void found(StepId) override { FAIL("there are no other ranks"); }
    void computed(StepId id, ComputeOutcome outcome) override {
      REQUIRE(outcome.done);
      ends.order.push_back(id.value);
      for (const auto& result : outcome.sequences)
        ends.logprobs[id.value].push_back(result.sampled->logprob);
      if (ends.order.size() == 2) both.set_value();
    }
    Ends ends;
    std::promise<void> both;
  };

  MessagePtr plan(std::size_t replica, std::uint64_t step) const {
    StepPlan plan;
    plan.body.step = StepId{step};
    for (std::int32_t i = 0; i < sequences_; ++i) {
      StepSequence s;
      s.id = SequenceId{static_cast<std::uint64_t>(i)};
      s.first_position = static_cast<std::int32_t>(step) - 1;
      const auto number = static_cast<std::int32_t>(replica) * sequences_ + i;
      s.tokens = {static_cast<TokenId>((number * 7 + static_cast<std::int32_t>(step)) % 50)};
      s.block_table = {i};
      s.sample = true;
      plan.body.sequences.push_back(s);
    }
    return message_of(std::move(plan));
  }

  struct News final : ShardNews, std::enable_shared_from_this<News> {
    News(Replicas& r, std::size_t i) : replicas(r), index(i) {}
    void begin() {
      const auto job = [self = shared_from_this(), message = replicas.plan(index, ++step)] {
        self->replicas.computes_[self->index]->begin({message, {}}, self);
      };
      REQUIRE(replicas.device_.submit(job).ok());
    }
    void cut(StepId, ExpertCut) override { FAIL("all experts are here"); }
    void found(StepId) override { FAIL("there are no other ranks"); }
    void computed(StepId id, ComputeOutcome outcome) override {
      REQUIRE(!outcome.error);
      REQUIRE(outcome.done);
      for (const auto& result : outcome.sequences) logprobs.push_back(result.sampled->logprob);
      REQUIRE(replicas.device_
                  .submit([self = shared_from_this(), id] {
                    self->replicas.computes_[self->index]->release(id);
                  })
                  .ok());
      if (step < kSteps)
        begin();
      else
        end.set_value();
    }
    Replicas& replicas;
    const std::size_t index;
    std::uint64_t step = 0;
    std::vector<float> logprobs;
    std::promise<void> end;
  };

  const std::int32_t sequences_;
  const std::shared_ptr<const Checkpoint> checkpoint_;
  const std::shared_ptr<const ModelSpec> spec_;
  std::vector<std::shared_ptr<News>> news_;
  std::vector<std::unique_ptr<ForwardCompute>> computes_;
  CpuDevice device_{{.index = 0, .kind = "cpu", .memory_total = 0, .threads = 2}};
};

}  // namespace

TEST_CASE("eight replicas read hardly more of the experts than one batch of all their rows") {
  Replicas one(1, 32), eight(8, 4);
  const std::uint64_t alone = one.run();
  const std::uint64_t together = eight.run();
  MESSAGE(together << " experts read by 8 x 4, " << alone << " by 32");
  CHECK(together <= 2 * alone);
  // No row's result depends on its company.
  const auto all = one.logprobs(0);
  REQUIRE(all.size() == 32 * kSteps);
  for (std::size_t replica = 0; replica < 8; ++replica) {
    const auto own = eight.logprobs(replica);
    REQUIRE(own.size() == 4 * kSteps);
    for (std::size_t step = 0; step < kSteps; ++step)
      for (std::size_t i = 0; i < 4; ++i)
        CHECK(own[step * 4 + i] == all[step * 32 + replica * 4 + i]);
  }
}

TEST_CASE("a step that is given up leaves the pool before its experts are read") {
  Replicas one(1, 4);
  const auto [outcome, read] = one.outcome_if(
      [](ForwardCompute& compute, Device&) { compute.give_up(StepId{1}); });
  REQUIRE(outcome.error);
  CHECK(!outcome.done);
  CHECK(read == 0);
  Replicas other(1, 4);
  const auto [whole, all_read] = other.outcome_if(
      [](ForwardCompute& compute, Device&) { compute.give_up(StepId{2}); });
  CHECK(whole.done);
  CHECK(all_read > 0);
}

TEST_CASE("a step that waits on a device that fails ends with its reason") {
  Replicas one(1, 4);
  const auto [outcome, read] =
      one.outcome_if([](ForwardCompute&, Device& device) { device.fail("a broken kernel"); });
  REQUIRE(outcome.error);
  CHECK(outcome.error->code == ErrorCode::kUnavailable);
  CHECK(outcome.error->message.find("a broken kernel") != std::string::npos);
  CHECK(read == 0);
}

TEST_CASE("a shard that ends takes its steps along") {
  Replicas one(1, 4);
  CHECK(one.ends_with_its_steps());
}

TEST_CASE("an express step passes another one between its layers, and changes no number") {
  for (const char* model : {"v3", "llama"}) {  // with experts and without
    CAPTURE(model);
    Replicas plain(1, 4, model), passing(1, 4, model);
    const auto one_after_the_other = plain.two_steps(false);
    const auto passed = passing.two_steps(true);
    CHECK(one_after_the_other.order == std::vector<std::uint64_t>{1, 2});
    CHECK(passed.order == std::vector<std::uint64_t>{2, 1});
    CHECK(passed.logprobs == one_after_the_other.logprobs);
  }
}
