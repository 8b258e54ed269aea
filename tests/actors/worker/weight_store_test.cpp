#include "actors/worker/weight_store.h"

#include <doctest/doctest.h>

#include <map>

#include "model/weights.h"
#include "tests/actors/worker/fake_sizes.h"

namespace troupe {
namespace {

constexpr DeviceRef kHere{NodeId{1}, 0};
using Sizes = testing::FakeSizes;
constexpr std::uint64_t kExpertBytes = Sizes::kExpert, kLayerBytes = Sizes::kLayer;

WeightPart part_of(std::vector<std::int32_t> experts, std::vector<std::int32_t> tier = {}) {
  WeightPart part;
  part.shards = {{0, 0, 0, 0, 0, kHere}};
  part.experts = {{1, {}}};
  for (const auto e : experts) part.experts[0].slots.push_back({e, kHere});
  if (!tier.empty()) part.tier = {{1, {}}};
  for (const auto e : tier) part.tier[0].slots.push_back({e, kHere});
  return part;
}

std::uint64_t bytes(std::uint64_t experts) { return kLayerBytes + experts * kExpertBytes; }

using Ids = std::vector<std::int32_t>;

/// A store, and a source that counts what it reads.
struct Weights {
  WeightStore store;
  std::map<std::int32_t, int> reads;  ///< by expert of layer 1
  int shard_reads = 0;

  explicit Weights(WeightStore::Options options = WeightStore::Options{})
      : store(std::move(options)) {
    store.use({"abc", std::make_shared<const Sizes>(), ""});
  }

  bool take(PieceRead piece) {
    const bool counts = store.take(std::move(piece));
    CHECK(store.violation() == "");
    return counts;
  }
  bool take_expert(std::int32_t expert, std::optional<std::uint32_t> device = {}) {
    ++reads[expert];
    const auto weights = std::make_shared<const ExpertWeights>();
    const PieceTensors tensors(weights, &weights->tensors);
    return take({Numerics::kReference, {1, expert}, {}, true, weights, nullptr, tensors, device});
  }
  bool take_shard(const LayerRange& layers, std::optional<std::uint32_t> device = {}) {
    ++shard_reads;
    return take({Numerics::kReference,
                 {},
                 layers,
                 false,
                 nullptr,
                 std::make_shared<const ShardWeights>(),
                 nullptr,
                 device});
  }
  /// Reads at most that many pieces of an order.
  void read(const ReadOrder& order, std::size_t most = 1000) {
    for (const auto& key : order.experts)
      if (most > 0 && most-- > 0) take_expert(key.expert);
    for (const auto& layers : order.shards)
      if (most > 0 && most-- > 0) take_shard(layers);
  }
  void begin(std::uint64_t version, const WeightPart& part,
             std::optional<std::uint64_t> active = {}) {
    std::optional<PlacementVersion> serving;
    if (active) serving = PlacementVersion{*active};
    store.begin(PlacementVersion{version}, part, serving);
    CHECK(store.violation() == "");
  }
  LoadedPart load(std::uint64_t version, const WeightPart& part,
                  std::optional<std::uint64_t> active = {}) {
    begin(version, part, active);
    read(store.missing(PlacementVersion{version}));
    REQUIRE(store.complete(PlacementVersion{version}));
    return store.part(PlacementVersion{version});
  }
  void load_tier(std::uint64_t version) { read(store.missing_tier(PlacementVersion{version})); }
  void retire(std::uint64_t version) {
    store.retire(PlacementVersion{version});
    CHECK(store.violation() == "");
  }
  Ids held() const {
    const auto held = store.held();
    return held.experts.empty() ? Ids{} : held.experts[0].experts;
  }
};

TEST_CASE("the next version reads only what it adds, and nothing goes before it is retired to") {
  Weights w;
  const auto first = w.load(1, part_of({0, 1}));
  CHECK(w.store.held_bytes() == bytes(2));
  const auto second = w.load(2, part_of({1, 2}), 1);
  CHECK(w.reads[0] == 1);
  CHECK(w.reads[1] == 1);
  CHECK(w.reads[2] == 1);
  CHECK(w.shard_reads == 1);
  CHECK(second.shards[0] == first.shards[0]);
  CHECK(second.experts.at(0).at({1, 1}) == first.experts.at(0).at({1, 1}));
  CHECK(w.held() == Ids{0, 1, 2});
  CHECK(w.store.held_bytes() == bytes(3));
  w.retire(2);
  CHECK(w.held() == Ids{1, 2});
  CHECK(w.store.held_bytes() == bytes(2));
  CHECK(w.store.held().bytes == bytes(2));
  CHECK(w.store.held().shards == std::vector<LayerRange>{{0, 0}});
}

TEST_CASE("experts are read before shards, in the order of the part, each once") {
  Weights w;
  WeightPart part = part_of({3, 1});
  part.experts.push_back({1, {{1, {NodeId{1}, 1}}, {2, kHere}}});
  w.begin(1, part);
  const ReadOrder order = w.store.missing(PlacementVersion{1});
  CHECK(order.version == PlacementVersion{1});
  CHECK(order.checkpoint_hash == "abc");
  CHECK(!order.tier);
  CHECK(order.experts == std::vector<ExpertKey>{{1, 3}, {1, 1}, {1, 2}});
  CHECK(order.shards == std::vector<LayerRange>{{0, 0}});
  CHECK(order.devices == std::vector<std::uint32_t>{0, 0, 0, 0});
  CHECK(!w.store.complete(PlacementVersion{1}));
  w.read(order);
  CHECK(w.store.missing(PlacementVersion{1}).experts.empty());
  const auto loaded = w.store.part(PlacementVersion{1});
  CHECK(loaded.experts.at(0).size() == 3);
  CHECK(loaded.experts.at(1).size() == 1);  // a copy on each device, one in memory
  CHECK(loaded.experts.at(1).at({1, 1}) == loaded.experts.at(0).at({1, 1}));
}

TEST_CASE("an order says which device computes with what") {
  Weights w;
  WeightPart part = part_of({3});
  part.shards.at(0).device.index = 2;
  part.experts[0].slots.push_back({1, {NodeId{1}, 1}});
  w.begin(1, part);
  CHECK(w.store.missing(PlacementVersion{1}).devices == std::vector<std::uint32_t>{0, 1, 2});
  w.take_expert(3);
  CHECK(w.store.missing(PlacementVersion{1}).devices == std::vector<std::uint32_t>{1, 2});
}

TEST_CASE("what is let go is handed out to be freed, once") {
  Weights w;
  const auto first = w.load(1, part_of({0, 1}));
  CHECK(w.store.take_garbage().empty());
  w.load(2, part_of({1}), 1);
  w.retire(2);
  const Garbage garbage = w.store.take_garbage();
  REQUIRE(garbage.size() == 1);
  CHECK(garbage[0].get() == &first.experts.at(0).at({1, 0})->tensors);
  CHECK(w.store.take_garbage().empty());
}

TEST_CASE("a retirement keeps what a pending version has read") {
  Weights w;
  w.load(1, part_of({0, 1}));
  w.load(2, part_of({1}), 1);
  w.load(3, part_of({3}), 2);
  w.retire(2);
  CHECK(w.held() == Ids{1, 3});
}

TEST_CASE("what was read for a version that is given up goes with the next retirement") {
  Weights w;
  w.load(1, part_of({0, 1}));
  w.load(2, part_of({1, 3}), 1);
  CHECK(w.held() == Ids{0, 1, 3});
  w.store.give_up_after(PlacementVersion{1});
  w.retire(1);
  CHECK(w.held() == Ids{0, 1});
  CHECK(w.store.take_garbage().size() == 1);
}

TEST_CASE("what a superseded version has read is kept for the one that takes its place") {
  Weights w;
  w.load(1, part_of({0}));
  w.load(2, part_of({0, 5, 6}), 1);
  w.load(3, part_of({0, 6}), 1);
  CHECK(w.reads[6] == 1);
  w.retire(3);
  CHECK(w.held() == Ids{0, 6});
}

TEST_CASE("with nothing that serves, memory goes before more is read") {
  Weights w;
  w.load(7, part_of({0, 1}));
  w.store.forget_versions();  // another membership: its versions count from the start
  CHECK(w.held() == Ids{0, 1});
  w.begin(1, part_of({1, 2}));
  CHECK(w.held() == Ids{1});
  w.read(w.store.missing(PlacementVersion{1}));
  CHECK(w.held() == Ids{1, 2});
  CHECK(w.reads[1] == 1);
}

TEST_CASE("a cancelled load keeps what it has read") {
  Weights w;
  w.begin(1, part_of({0, 1, 2, 3}));
  w.read(w.store.missing(PlacementVersion{1}), 1);
  CHECK(!w.store.complete(PlacementVersion{1}));
  CHECK(w.held() == Ids{0});  // experts come first, in their order
  w.load(2, part_of({0, 1}));
  CHECK(w.reads[0] == 1);
}

TEST_CASE("a piece that comes late is kept if a version asks for it, and else freed") {
  Weights w;
  w.load(1, part_of({0}));
  w.begin(2, part_of({0, 5, 6}), 1);
  w.begin(3, part_of({0, 6}), 1);
  CHECK(!w.take_expert(5));
  CHECK(w.store.take_garbage().size() == 1);
  CHECK(w.take_expert(6));
  CHECK(w.held() == Ids{0, 6});
  CHECK(!w.take_expert(6));  // the order that took the place of the first reads it as well
  CHECK(w.store.take_garbage().size() == 1);
  CHECK(w.store.progress().bytes_done == w.store.progress().bytes_total);
  // After the end of a membership nobody can say yet whether it is wanted.
  w.store.forget_versions();
  CHECK(!w.take_expert(9));
  CHECK(w.held() == Ids{0, 6, 9});
}

TEST_CASE("what is let go without a head goes at once, and what was on its way when it comes") {
  Weights w;
  w.load(1, part_of({0, 1}));
  w.begin(2, part_of({0, 1, 5}), 1);
  w.store.let_go();
  CHECK(w.store.take_garbage().size() >= 2);
  CHECK(w.store.held_bytes() == 0);
  CHECK(!w.take_expert(5));
  CHECK(w.store.take_garbage().size() == 1);
  CHECK(w.store.held_bytes() == 0);
  // The next membership loads as ever.
  w.store.forget_versions();
  w.load(1, part_of({0}));
  CHECK(w.held() == Ids{0});
}

TEST_CASE("progress counts the bytes of the newest load, held ones included") {
  Weights w;
  w.load(1, part_of({0, 1}));
  w.begin(2, part_of({1, 2, 3}, {7}), 1);
  CHECK(w.store.progress().version == PlacementVersion{2});
  CHECK(w.store.progress().bytes_total == bytes(3));
  CHECK(w.store.progress().bytes_done == bytes(1));
  CHECK(w.take_expert(2));
  CHECK(w.store.progress().bytes_done == bytes(2));
  CHECK(!w.take_expert(7));  // of its tier
  CHECK(w.held() == Ids{0, 1, 2, 7});
  CHECK(w.store.progress().bytes_done == bytes(2));
}

TEST_CASE("the second tier is read last, within its memory, and promoted without a read") {
  Weights w({.tier_memory = 2 * kExpertBytes});
  w.load(1, part_of({0}, {0, 4, 5, 6}));
  CHECK(w.held() == Ids{0});
  CHECK(w.store.missing_tier(PlacementVersion{1}).tier);
  w.load_tier(1);
  CHECK(w.held() == Ids{0, 4, 5});  // 6 has no room; 0 is served and takes none
  w.load_tier(1);
  CHECK(w.reads[4] == 1);
  w.retire(1);
  CHECK(w.held() == Ids{0, 4, 5});

  w.begin(2, part_of({0, 4}, {6}), 1);
  CHECK(w.store.complete(PlacementVersion{2}));
  CHECK(w.store.part(PlacementVersion{2}).experts.at(0).contains({1, 4}));
  CHECK(w.reads[4] == 1);
  w.retire(2);
  w.load_tier(2);
  CHECK(w.held() == Ids{0, 4, 6});
}

/// Of two devices with memory of their own: each has the layers, and some of the experts.
WeightPart part_of_two(std::vector<std::int32_t> first, std::vector<std::int32_t> second,
                       std::vector<std::int32_t> tier = {}) {
  WeightPart part = part_of(std::move(first), std::move(tier));
  const DeviceRef other{NodeId{1}, 1};
  for (const auto e : second) part.experts[0].slots.push_back({e, other});
  part.shards.push_back({1, 0, 0, 0, 0, other});
  return part;
}

const WeightStore::Options kTwoDevices = {.tier_memory = 2 * kExpertBytes, .own_memory = {0, 1}};

TEST_CASE("what two devices are to have is read once, and copied") {
  Weights w(kTwoDevices);
  w.begin(1, part_of_two({0, 4}, {4, 5}));
  const ReadOrder first = w.store.missing(PlacementVersion{1});
  CHECK(first.experts == std::vector<ExpertKey>{{1, 0}, {1, 4}, {1, 5}});
  CHECK(first.shards.size() == 1);
  CHECK(first.devices == std::vector<std::uint32_t>{0, 0, 1, 0});
  CHECK_FALSE(first.copies());
  w.take_expert(0, 0);
  w.take_expert(4, 0);
  CHECK_FALSE(w.store.missing(PlacementVersion{1}).copies());
  w.take_expert(5, 1);
  w.take_shard({0, 0}, 0);
  CHECK_FALSE(w.store.complete(PlacementVersion{1}));
  const ReadOrder rest = w.store.missing(PlacementVersion{1});
  CHECK(rest.copies());
  CHECK(rest.experts == std::vector<ExpertKey>{{1, 4}});
  CHECK(rest.shards.size() == 1);
  CHECK(rest.devices == std::vector<std::uint32_t>{1, 1});
  CHECK(w.take_expert(4, 1));
  CHECK(w.take_shard({0, 0}, 1));
  CHECK(w.store.complete(PlacementVersion{1}));
  const LoadedPart part = w.store.part(PlacementVersion{1});
  CHECK(part.experts.at(0).at({1, 4}) == rest.expert_sources.front());
  CHECK(part.experts.at(1).at({1, 4}) != rest.expert_sources.front());
  CHECK(part.shards[0] != part.shards[1]);
  CHECK(w.store.progress().bytes_done == w.store.progress().bytes_total);
}

TEST_CASE("a device keeps nothing that only others serve") {
  Weights w(kTwoDevices);
  w.begin(1, part_of_two({0, 4}, {}));
  w.take_expert(0, 0);
  w.take_expert(4, 0);
  w.take_shard({0, 0}, 0);
  w.take_shard({0, 0}, 1);
  REQUIRE(w.store.complete(PlacementVersion{1}));
  const std::uint64_t held = w.store.held_bytes();
  SUBCASE("it moves to another device: it is copied, and goes") {
    w.begin(2, part_of_two({0}, {4}), 1);
    CHECK(w.store.missing(PlacementVersion{2}).copies());
    w.take_expert(4, 1);
    w.retire(2);
    CHECK(w.held() == Ids{0, 4});
    CHECK(w.store.held_bytes() == held);
    CHECK(w.store.take_garbage().size() == 1);
  }
  SUBCASE("it becomes of the second tier: it is read for the host") {
    w.begin(2, part_of_two({0}, {}, {4}), 1);
    w.retire(2);
    CHECK(w.held() == Ids{0});
    w.load_tier(2);
    CHECK(w.held() == Ids{0, 4});
    CHECK(w.reads[4] == 2);
    CHECK_FALSE(w.take_expert(4, 0));  // somebody's late reading
    // Promoted, it is copied from there.
    w.begin(3, part_of_two({0, 4}, {}), 2);
    CHECK(w.store.missing(PlacementVersion{3}).copies());
  }
}

TEST_CASE("what was read for a load that is given up leaves a device when the next begins") {
  Weights w(kTwoDevices);
  w.begin(1, part_of_two({0}, {}));
  w.take_expert(0, 0);
  w.take_shard({0, 0}, 0);
  w.take_shard({0, 0}, 1);
  w.begin(2, part_of_two({0, 4}, {5}), 1);
  w.take_expert(4, 0);
  w.take_expert(5, 1);
  w.begin(3, part_of_two({0, 6}, {5}), 1);
  CHECK(w.held() == Ids{0, 5});
  CHECK(w.store.take_garbage().size() == 1);
}

TEST_CASE("the second tier is copied from after a rejoin, too") {
  Weights w(kTwoDevices);
  w.begin(1, part_of_two({0}, {}, {4, 5}));
  w.take_expert(0, 0);
  w.take_shard({0, 0}, 0);
  w.take_shard({0, 0}, 1);
  w.retire(1);
  w.load_tier(1);
  w.store.forget_versions();
  w.begin(1, part_of_two({0}, {4}));
  const ReadOrder order = w.store.missing(PlacementVersion{1});
  CHECK(order.copies());
  CHECK(order.experts == std::vector<ExpertKey>{{1, 4}});
  CHECK(w.held() == Ids{0, 4});  // 5 is wanted nowhere
  w.take_expert(4, 1);
  w.retire(1);
  CHECK(w.store.held_bytes() == 2 * kLayerBytes + 2 * kExpertBytes);
}

TEST_CASE("what a device that failed had is read again, wherever it is to be") {
  Weights w(kTwoDevices);
  w.begin(1, part_of_two({0}, {4}));
  w.take_expert(0, 0);
  w.take_expert(4, 1);
  w.take_shard({0, 0}, 0);
  w.take_shard({0, 0}, 1);
  REQUIRE(w.store.complete(PlacementVersion{1}));
  w.store.drop_of_device(1);
  CHECK(w.store.violation() == "");
  CHECK(w.held() == Ids{0});
  CHECK(w.store.take_garbage().size() == 2);
  w.begin(2, part_of({0, 4}), 1);
  const ReadOrder order = w.store.missing(PlacementVersion{2});
  CHECK(order.experts == std::vector<ExpertKey>{{1, 4}});
  CHECK(order.expert_sources.front() == nullptr);
  CHECK(order.shards.empty());
  CHECK_FALSE(w.take_expert(4, 1));  // it was on its way
}

TEST_CASE("without memory of its own there is no second tier") {
  Weights w;
  w.load(1, part_of({0}, {4}));
  w.load_tier(1);
  CHECK(w.held() == Ids{0});
}

TEST_CASE("weights of another checkpoint go") {
  Weights w;
  w.load(1, part_of({0, 1}));
  w.store.use({"abc", std::make_shared<const Sizes>(), ""});
  CHECK(w.held() == Ids{0, 1});
  SUBCASE("with another hash") { w.store.use({"xyz", std::make_shared<const Sizes>(), ""}); }
  SUBCASE("in another folder") { w.store.use({"abc", std::make_shared<const Sizes>(), "/b"}); }
  CHECK(w.held().empty());
  CHECK(w.store.held_bytes() == 0);
  CHECK(w.store.take_garbage().size() == 3);
}

}  // namespace
}  // namespace troupe
