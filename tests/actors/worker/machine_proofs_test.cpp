// What a worker says of the copies that it holds, and what it does when one has changed.

#include <doctest/doctest.h>

#include <map>
#include <numeric>

#include "model/weights.h"
#include "tests/actors/worker/machine_stand.h"

namespace troupe {
namespace {

using namespace testing;

PieceTensors tensors_of(const std::vector<std::string>& names) {
  HeldTensors tensors;
  for (const auto& name : names) tensors.push_back({{name, "m.safetensors", {{1, 2}}, {}}, {}});
  return std::make_shared<const HeldTensors>(std::move(tensors));
}

std::vector<std::string> proven(const Stand& s) {
  std::vector<std::string> names;
  for (const auto& message : s.said<TensorProofs>()) {
    CHECK(!message.fresh);
    for (const auto& proof : message.tensors) names.push_back(proof.tensor);
  }
  return names;
}

/// Reads all of an order, and each piece has a tensor with the piece's name.
std::map<std::string, PieceTensors> read_named(Stand& s, const ReadOrder& order) {
  std::map<std::string, PieceTensors> pieces;
  for (const auto& key : order.experts) {
    const std::string name = "expert " + std::to_string(key.expert);
    pieces[name] = tensors_of({name});
    s.hear(PieceRead{order.numerics, key, {}, true, nullptr, nullptr, pieces[name]});
  }
  for (const auto& layers : order.shards) {
    pieces["shard"] = tensors_of({"shard"});
    s.hear(PieceRead{order.numerics, {}, layers, false, nullptr, nullptr, pieces["shard"]});
  }
  s.hear(PartRead{order.version, order.tier, {}});
  return pieces;
}

/// Another membership, with the weights that it held.
void join_again(Stand& s) {
  s.hear(HeadDown{"reset", false});
  for (const auto& actor : s.ended()) s.hear(Ended{actor});
  s.now += 1s;
  s.wake_up();
  s.hear(HeadUp{});
  s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "abc", std::nullopt});
  REQUIRE(s.said<Join>().size() == 1);
  s.from_head(Welcome{kSelf, kLife, 60'000});
}

TEST_CASE("what was read is told before Loaded, and what is held once a membership") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4, 5}));
  read_named(s, s.order());
  s.build();
  CHECK(proven(s) == std::vector<std::string>{"shard", "expert 4", "expert 5"});
  const auto* last = std::get_if<Loaded>(s.wants<SendAs>().back()->envelope.message.get());
  CHECK(last != nullptr);
  s.from_head(Activate{PlacementVersion{1}});
  s.from_head(load_of(2, {0}, {4, 5, 6}));
  read_named(s, s.order());
  s.build();
  CHECK(proven(s) == std::vector<std::string>{"expert 6"});
  CHECK(s.said<Loaded>().size() == 1);
  join_again(s);
  s.from_head(load_of(3, {0}, {4, 5, 6}));
  read_named(s, s.order());
  s.build();
  CHECK(proven(s) == std::vector<std::string>{"shard", "expert 4", "expert 5", "expert 6"});
}

TEST_CASE("of many pieces the proofs are told while the others are read") {
  Stand s;
  s.join();
  std::vector<std::int32_t> experts(100);
  std::iota(experts.begin(), experts.end(), 0);
  s.from_head(load_of(1, {0}, experts));
  const ReadOrder order = s.order();
  std::vector<std::string> told;
  for (const auto& key : order.experts) {
    const PieceTensors piece = tensors_of({std::to_string(key.expert)});
    s.hear(PieceRead{order.numerics, key, {}, true, nullptr, nullptr, piece});
    for (auto& name : proven(s)) told.push_back(std::move(name));
  }
  CHECK(told.size() >= experts.size() / 2);
  s.hear(PieceRead{order.numerics, {}, order.shards[0], false, nullptr, nullptr, nullptr});
  s.hear(PartRead{order.version, false, {}});
  s.build();
  CHECK(told.size() + proven(s).size() == experts.size());
}

TEST_CASE("many proofs go in portions") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4}));
  std::vector<std::string> names;
  for (std::size_t i = 0; i <= limits::kProofsPerMessage; ++i) names.push_back(std::to_string(i));
  const ReadOrder order = s.order();
  s.hear(PieceRead{order.numerics, {1, 4}, {}, true, nullptr, nullptr, tensors_of(names)});
  s.hear(PieceRead{order.numerics, {}, order.shards[0], false, nullptr, nullptr, nullptr});
  s.hear(PartRead{order.version, false, {}});
  s.build();
  CHECK(s.said<TensorProofs>().size() == 2);
  CHECK(proven(s) == names);
}

TEST_CASE("a copy that has changed ends the membership until all others are proven") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4, 5}));
  auto pieces = read_named(s, s.order());
  s.build();
  s.from_head(Activate{PlacementVersion{1}});

  s.hear(CopyDiffers{pieces["expert 4"], {"expert 4", "it has another digest.", 7}});
  REQUIRE(s.said<ProofFailed>().size() == 1);
  CHECK(s.said<ProofFailed>()[0].tensor == "expert 4");
  CHECK(s.said<ProofFailed>()[0].last_good_s == 7);
  CHECK(s.wants<EndActor>().size() == 3);
  CHECK(s.position<SendAs>() < s.position<EndActor>());
  CHECK(s.wants<CloseHead>().size() == 1);
  CHECK(s.wants<ProveCopies>().size() == 1);
  CHECK(s.wants<FreeWeights>().size() == 1);
  s.hear(HeadDown{"closed", false});
  s.now += 2s;
  s.wake_up();
  CHECK(s.wants<ConnectHead>().empty());
  // Another one, and one that is not held any more.
  s.hear(CopyDiffers{pieces["shard"], {"shard", "it has another digest.", 9}});
  CHECK(s.wants<FreeWeights>().size() == 1);
  s.hear(CopyDiffers{pieces["expert 4"], {"expert 4", "it has another digest.", 7}});
  CHECK(s.wants<FreeWeights>().empty());

  s.hear(CopiesProven{});
  CHECK(s.wants<ConnectHead>().size() == 1);
  s.hear(HeadUp{});
  s.from_head(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "abc", std::nullopt});
  REQUIRE(s.said<Join>().size() == 1);
  const Join join = s.said<Join>()[0];
  CHECK(join.held_shards.empty());
  CHECK(join.held_experts == std::vector<HeldExperts>{{1, {5}}});
}

TEST_CASE("a copy that had changed when it was let go ends the membership too") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4, 5}));
  auto pieces = read_named(s, s.order());
  s.build();
  s.from_head(Activate{PlacementVersion{1}});
  s.from_head(load_of(2, {0}, {5}));
  read_named(s, s.order());
  s.build();
  s.from_head(Activate{PlacementVersion{2}});
  s.settle(2, {0});
  s.from_head(Retire{PlacementVersion{2}});
  REQUIRE(s.wants<FreeWeights>().size() == 1);
  CHECK(s.wants<FreeWeights>()[0]->garbage == Garbage{pieces["expert 4"]});
  s.hear(CopyDiffers{pieces["expert 4"], {"expert 4", "it has another digest.", 7}});
  CHECK(s.said<ProofFailed>().size() == 1);
  CHECK(s.wants<ProveCopies>().size() == 1);
}

TEST_CASE("a worker whose copies cannot be proven in time ends") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4}));
  auto pieces = read_named(s, s.order());
  s.hear(CopyDiffers{pieces["expert 4"], {"expert 4", "it has another digest.", 7}});
  s.now += limits::kProveCopiesDeadline;
  s.wake_up();
  REQUIRE(s.wants<WorkerExit>().size() == 1);
  CHECK(s.wants<WorkerExit>()[0]->code == 1);
}

TEST_CASE("what may be wrong is read again, and what serves goes with the membership") {
  Stand s;
  s.join();
  s.from_head(load_of(1, {0}, {4, 5}));
  read_named(s, s.order());
  s.build();
  s.from_head(Activate{PlacementVersion{1}});
  s.from_head(load_of(2, {0}, {4, 5, 6}));
  read_named(s, s.order());
  s.from_head(Discard{{"expert 4", "expert 6", "none of its"}});
  CHECK(s.wants<FreeWeights>().size() == 1);
  s.from_head(load_of(3, {0}, {4, 5, 6}));
  CHECK(s.order().experts == std::vector<ExpertKey>{{1, 6}});
  read_named(s, s.order());
  s.build();
  CHECK(proven(s) == std::vector<std::string>{"expert 6"});

  join_again(s);
  s.from_head(load_of(1, {0}, {4, 5, 6}));
  CHECK(s.order().experts == std::vector<ExpertKey>{{1, 4}});
}

TEST_CASE("a question for proofs is passed on, and its answer comes back") {
  Stand s;
  s.join();
  s.from_head(Prove{{"a", "b"}});
  REQUIRE(s.wants<ProveTensors>().size() == 1);
  CHECK(s.wants<ProveTensors>()[0]->tensors == std::vector<std::string>{"a", "b"});
  s.hear(ProofsRead{{true, {}, not_found("gone")}});
  REQUIRE(s.said<TensorProofs>().size() == 1);
  CHECK(s.said<TensorProofs>()[0].fresh);
}

}  // namespace
}  // namespace troupe
