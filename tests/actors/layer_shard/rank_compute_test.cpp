/// The steps of tensor-parallel ranks, each on a device of its own with its thread.
#include <doctest/doctest.h>

#include <functional>
#include <future>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/layer_shard/forward_compute.h"
#include "model/spec/split_model.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"
#include "transport/collectives/lane_collective.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

constexpr std::uint32_t kReplica = 3;

/// What happens to a part on its way; false: it does not arrive.
using OnTheWay = std::function<bool(std::uint32_t from, std::uint32_t to, RankPart&)>;

/// Which experts a rank's device has, and which rank it takes for the one that computes an expert.
struct Placed {
  std::function<bool(std::uint32_t rank, std::int32_t expert)> has = [](auto, auto) {
    return true;
  };
  std::function<std::optional<std::uint32_t>(std::uint32_t rank, std::int32_t expert)> knows;
};

class Ranks {
 public:
  explicit Ranks(std::uint32_t size, OnTheWay way = {}, Placed placed = {})
      : way_(std::move(way)), placed_(std::move(placed)) {
    if (!placed_.knows)
      placed_.knows = [size](auto, std::int32_t e) { return static_cast<std::uint32_t>(e) % size; };
    for (std::uint32_t r = 0; r < size; ++r) ranks_.push_back(std::make_unique<One>());
    for (std::uint32_t r = 0; r < size; ++r) set_up(r);
  }
  ~Ranks() {
    for (std::uint32_t r = 0; r < ranks_.size(); ++r)
      run(r, [this, r] { ranks_[r]->compute->end(); });
  }

  /// A step of three sequences begins on that rank.
  std::future<ComputeOutcome> begin(std::uint32_t rank, std::uint64_t step) {
    auto news = std::make_shared<News>(*this, rank);
    auto outcome = news->outcome.get_future();
    run(rank, [this, rank, step, news] { ranks_[rank]->compute->begin({plan(step), {}}, news); });
    return outcome;
  }
  void give_up(std::uint32_t rank, std::uint64_t step) {
    run(rank, [this, rank, step] { ranks_[rank]->compute->give_up(StepId{step}); });
  }
  void release(std::uint32_t rank, std::uint64_t step) {
    run(rank, [this, rank, step] { ranks_[rank]->compute->release(StepId{step}); });
  }
  /// That it reached this point of its queue.
  void pass(std::uint32_t rank) {
    std::promise<void> passed;
    run(rank, [&] { passed.set_value(); });
    passed.get_future().wait();
  }
  const ForwardCompute& compute(std::uint32_t rank) const { return *ranks_[rank]->compute; }
  int questions(std::uint32_t rank) const { return ranks_[rank]->questions; }
  int answers(std::uint32_t rank) const { return ranks_[rank]->answers; }

  std::vector<float> logprobs(std::uint64_t step) {
    std::vector<std::future<ComputeOutcome>> outcomes;
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) outcomes.push_back(begin(r, step));
    std::vector<float> all;
    for (auto& outcome : outcomes) {
      const ComputeOutcome o = outcome.get();
      REQUIRE_MESSAGE(!o.error, (o.error ? o.error->message : ""));
      REQUIRE(o.done);
      for (const auto& result : o.sequences)
        if (result.sampled) all.push_back(result.sampled->logprob);
    }
    for (std::uint32_t r = 0; r < ranks_.size(); ++r) release(r, step);
    return all;
  }

 private:
  /// Asks and answers as a LayerShard: a step has one question at a time, and none when it ends.
  struct News final : ShardNews, std::enable_shared_from_this<News> {
    News(Ranks& all, std::uint32_t of) : ranks(all), rank(of) {}
    void cut(StepId, ExpertCut cut) override {
      CHECK_FALSE(open);
      open = std::move(cut);
      ++ranks.ranks_[rank]->questions;
    }
    void found(StepId) override {
      CHECK(open);
      open.reset();
    }
    void computed(StepId step, ComputeOutcome found) override {
      if (!found.done && !found.error && open) return ranks.answer(rank, step, *this);
      CHECK_FALSE(open);
      outcome.set_value(std::move(found));
    }
    Ranks& ranks;
    const std::uint32_t rank;
    std::optional<ExpertCut> open;
    std::promise<ComputeOutcome> outcome;
  };
  struct One {
    std::shared_ptr<const ModelSpec> spec;
    std::shared_ptr<LaneCollective> collective;
    std::unique_ptr<ForwardCompute> compute;
    std::shared_ptr<const ExpertSet> everything;  // as a device beyond the ranks has it
    std::atomic<int> questions{0}, answers{0};
    CpuDevice device{{.index = 0, .kind = "cpu", .memory_total = 0, .threads = 1}};
  };

  /// A device beyond the ranks computes what was asked for.
  void answer(std::uint32_t rank, StepId step, News& news) {
    ++ranks_[rank]->answers;
    auto cut = std::make_shared<ExpertCut>(std::move(*news.open));
    news.open.reset();
    run(rank, [this, rank, step, cut, kept = news.shared_from_this()] {
      One& one = *ranks_[rank];
      auto outputs = std::make_shared<std::vector<std::byte>>(cut->missing.size() * cut->row_bytes);
      std::vector<const std::byte*> rows;
      std::vector<std::int32_t> experts;
      std::vector<std::byte*> places;
      for (MissingOutput& missing : cut->missing) {
        missing.call = 1;
        rows.push_back(cut->rows.data() +
                       static_cast<std::size_t>(missing.source) * cut->row_bytes);
        experts.push_back(missing.expert);
        places.push_back(outputs->data() + places.size() * cut->row_bytes);
      }
      ExpertForward forward(checkpoint_->spec(), one.device.stream(Numerics::kReference));
      forward.run(*one.everything, {cut->layer, rows, experts, places});
      cut->answers.push_back({1, {outputs, std::span(*outputs), MemoryKind::kHost}});
      one.compute->resume({step, std::move(*cut)}, kept);
    });
  }

  void set_up(std::uint32_t r) {
    One& one = *ranks_[r];
    const TensorRank rank = {r, static_cast<std::uint32_t>(ranks_.size())};
    one.spec = std::make_shared<const ModelSpec>(split_model(checkpoint_->spec(), rank));
    const std::int32_t last = one.spec->num_layers() - 1;
    ExpertSet::Map experts, everything;
    for (std::int32_t layer = 0; layer <= last; ++layer)
      if (one.spec->layers[static_cast<std::size_t>(layer)].has_experts())
        for (std::int32_t e = 0; e < one.spec->num_experts(); ++e) {
          everything[{layer, e}] = must(load_expert(*checkpoint_, Numerics::kReference, layer, e));
          if (placed_.has(r, e)) experts[{layer, e}] = everything[{layer, e}];
        }
    one.everything = std::make_shared<const ExpertSet>(PlacementVersion{1}, std::move(everything));
    const auto published =
        std::make_shared<const ExpertSet>(PlacementVersion{1}, std::move(experts));
    one.device.publish(published, published);
    ForwardCompute::Options options{
        .model = one.spec,
        .numerics = Numerics::kReference,
        .weights = must(load_shard(*checkpoint_, Numerics::kReference, 0, last, {}, rank)),
        .cache = must(KvCache::create(*one.spec, Numerics::kReference, {0, last, 64, 16})),
        .cache_memory = {},
        .experts = std::make_shared<ExpertForward>(checkpoint_->spec(),
                                                   one.device.stream(Numerics::kReference))};
    one.compute = std::make_unique<ForwardCompute>(std::move(options), one.device);
    one.collective = std::make_shared<LaneCollective>(rank, kReplica,
                                                      [this, r](std::uint32_t to, RankPart part) {
                                                        if (way_ && !way_(r, to, part)) return;
                                                        ranks_[to]->collective->arrived(r, part);
                                                      });
    one.compute->use(one.collective);
    auto known = std::make_shared<ExpertRanks>(one.spec->num_layers(), one.spec->num_experts());
    for (std::int32_t layer = 0; layer <= last; ++layer)
      for (std::int32_t e = 0; e < one.spec->num_experts(); ++e)
        if (const auto rank_of = placed_.knows(r, e)) known->set(layer, e, *rank_of);
    one.compute->deal(known);
  }

  void run(std::uint32_t rank, std::function<void()> job) {
    REQUIRE(ranks_[rank]->device.submit(std::move(job), Device::Room::kAlways).ok());
  }

  MessagePtr plan(std::uint64_t step) const {
    StepPlan plan;
    plan.body.step = StepId{step};
    for (std::int32_t i = 0; i < 3; ++i) {
      StepSequence s;
      s.id = SequenceId{static_cast<std::uint64_t>(i)};
      s.first_position = static_cast<std::int32_t>(step) - 1;
      s.tokens = {static_cast<TokenId>((i * 7 + static_cast<std::int32_t>(step)) % 50)};
      s.block_table = {i};
      s.sample = true;
      plan.body.sequences.push_back(s);
    }
    return message_of(std::move(plan));
  }

  const OnTheWay way_;
  Placed placed_;
  std::shared_ptr<const Checkpoint> checkpoint_ =
      must(Checkpoint::open(source_path("tests/golden/v3")));
  std::vector<std::unique_ptr<One>> ranks_;
};

}  // namespace

TEST_CASE("ranks on devices of their own compute what one device computes") {
  Ranks one(1);
  std::vector<float> expected;
  for (std::uint64_t step = 1; step <= 4; ++step)
    for (const float v : one.logprobs(step)) expected.push_back(v);
  REQUIRE(expected.size() == 12);
  for (const std::uint32_t size : {2u, 4u, 8u}) {
    CAPTURE(size);
    // Every third part takes so long that no job looks for it any more.
    std::atomic<int> parts{0};
    Ranks ranks(size, [&](std::uint32_t, std::uint32_t, RankPart&) {
      if (++parts % 3 == 0) std::this_thread::sleep_for(3 * limits::kRankLook);
      return true;
    });
    std::vector<float> found;
    for (std::uint64_t step = 1; step <= 4; ++step)
      for (const float v : ranks.logprobs(step)) found.push_back(v);
    CHECK(found == expected);
  }
}

TEST_CASE("ranks that follow different placements compute the same, and no question is left over") {
  std::vector<float> expected;
  Ranks one(1);
  for (std::uint64_t step = 1; step <= 4; ++step)
    for (const float v : one.logprobs(step)) expected.push_back(v);
  const auto odd = [](std::int32_t expert) { return expert % 2 == 1; };
  const auto third = [](std::int32_t expert) { return expert % 3 == 0; };
  using Rank = std::optional<std::uint32_t>;
  struct Case {
    const char* what;
    Placed placed;
    bool asks, waits;
  };
  const Case cases[] = {
      {"rank 1 asks for what rank 0 computes for it",
       {.has = [&](auto rank, auto e) { return rank == 0 || odd(e); },
        .knows = [&](auto rank, auto e) -> Rank {
          if (odd(e)) return 1;
          return rank == 0 ? Rank(0) : std::nullopt;
        }},
       true, false},
      {"and for some that nobody has",
       {.has = [&](auto rank, auto e) { return !third(e) && (rank == 0 || odd(e)); },
        .knows = [&](auto rank, auto e) -> Rank {
          if (third(e)) return std::nullopt;
          if (odd(e)) return 1;
          return rank == 0 ? Rank(0) : std::nullopt;
        }},
       true, true},
      {"and relies on rank 0 for others, which it has no more",
       {.has = [&](auto rank, auto e) { return !third(e) && (rank == 0 || odd(e)); },
        .knows = [&](auto rank, auto e) -> Rank {
          if (third(e)) return rank == 0 ? std::nullopt : Rank(0);
          if (odd(e)) return 1;
          return rank == 0 ? Rank(0) : std::nullopt;
        }},
       true, true},
  };
  for (const Case& c : cases) {
    CAPTURE(c.what);
    Ranks ranks(2, {}, c.placed);
    std::vector<float> found;
    for (std::uint64_t step = 1; step <= 4; ++step)
      for (const float v : ranks.logprobs(step)) found.push_back(v);
    CHECK(found == expected);
    CHECK((ranks.questions(1) > 1) == c.asks);
    CHECK((ranks.answers(1) > 0) == c.waits);
  }
}

TEST_CASE("a step that is given up while it waits for other ranks ends, and is not waited for") {
  Ranks ranks(2);
  auto outcome = ranks.begin(0, 1);
  ranks.pass(0);
  CHECK(ranks.compute(0).hears_ranks(now()));
  CHECK_FALSE(ranks.compute(0).hears_ranks(now() + 2 * limits::kExpertSilence));
  ranks.give_up(0, 1);
  CHECK(outcome.get().error);
  CHECK(ranks.compute(0).hears_ranks(now() + 2 * limits::kExpertSilence));
  ranks.release(0, 1);
  // The other one is told later: what has come does not carry it to the end.
  auto other = ranks.begin(1, 1);
  ranks.pass(1);
  ranks.give_up(1, 1);
  CHECK(other.get().error);
  ranks.release(1, 1);
  CHECK(ranks.logprobs(2).size() == 3);
}

TEST_CASE("a step that is given up before it would wait ends as well") {
  Ranks ranks(2);
  auto first = ranks.begin(0, 1);
  ranks.pass(0);
  // Its part is here, so a job goes on; that the step is not wanted any more comes first.
  std::promise<void> held;
  auto second = ranks.begin(1, 1);
  ranks.give_up(0, 1);
  ranks.give_up(1, 1);
  first.wait();
  second.wait();
  CHECK(first.valid());
  CHECK(second.valid());
}

TEST_CASE("a part that does not fit fails the step") {
  Ranks ranks(2, [](std::uint32_t from, std::uint32_t, RankPart& part) {
    if (from == 1 && part.exchange == 3)
      part.payload.bytes = part.payload.bytes.first(part.payload.bytes.size() - 4);
    return true;
  });
  auto outcome = ranks.begin(0, 1);
  auto other = ranks.begin(1, 1);
  const ComputeOutcome failed = outcome.get();
  REQUIRE(failed.error);
  CHECK(failed.error->code == ErrorCode::kCorrupt);
  CHECK(failed.error->message.find("rank 1") != std::string::npos);
  ranks.give_up(1, 1);
  CHECK(other.get().error);
}

TEST_CASE("a shard that ends while it waits for other ranks leaves nothing behind") {
  Ranks ranks(2);
  auto outcome = ranks.begin(0, 1);
  ranks.pass(0);
}

TEST_CASE("outputs of experts that do not fit fail the step") {
  // After the rows of the embedding, a dense layer's two sums and the attention of the next one.
  constexpr std::uint32_t kOutputs = 5;
  const auto word = [](std::size_t at, std::uint32_t value) {
    return [at, value](std::vector<std::byte>& bytes) {
      std::memcpy(bytes.data() + at, &value, sizeof value);
    };
  };
  const std::function<void(std::vector<std::byte>&)> spoils[] = {
      [](auto& bytes) { bytes.resize(32); },
      [](auto& bytes) { bytes.resize(bytes.size() - 64); },
      [](auto& bytes) { bytes.resize(bytes.size() + 64); },
      word(0, 0xffff'ffff),   // pairs
      word(64, 0xffff'ffff),  // the first one's number
  };
  for (const auto& spoil : spoils) {
    Ranks ranks(2, [&](std::uint32_t from, std::uint32_t, RankPart& part) {
      if (from == 0 || part.exchange != kOutputs) return true;
      auto bytes = std::make_shared<std::vector<std::byte>>(part.payload.bytes.begin(),
                                                            part.payload.bytes.end());
      spoil(*bytes);
      part.payload = {bytes, std::span(*bytes), MemoryKind::kHost};
      return true;
    });
    auto outcome = ranks.begin(0, 1);
    auto other = ranks.begin(1, 1);
    const ComputeOutcome failed = outcome.get();
    REQUIRE(failed.error);
    CHECK(failed.error->code == ErrorCode::kCorrupt);
    ranks.give_up(1, 1);
    CHECK(other.get().error);
  }
}
