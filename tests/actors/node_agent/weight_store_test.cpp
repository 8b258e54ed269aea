#include "actors/node_agent/weight_store.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>

#include "model/memory_estimate.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;

constexpr const char* kModel = TROUPE_SOURCE_DIR "/tests/golden/v2-lite";
constexpr DeviceRef kHere{NodeId{1}, 0};
constexpr std::uint64_t kPlenty = std::uint64_t{1} << 40;

/// A copy of the model that a test may spoil.
class Folder {
 public:
  Folder() {
    std::string name = (fs::temp_directory_path() / "troupe-weights-XXXXXX").string();
    REQUIRE(::mkdtemp(name.data()) != nullptr);
    path_ = name;
    for (const auto& entry : fs::directory_iterator(kModel))
      fs::copy_file(entry.path(), path_ / entry.path().filename());
  }
  ~Folder() { fs::remove_all(path_); }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  std::string string() const { return path_.string(); }
  fs::path weights() const { return path_ / "model.safetensors"; }

 private:
  fs::path path_;
};

std::shared_ptr<const Checkpoint> open(const std::string& folder = kModel) {
  auto opened = Checkpoint::open(folder);
  if (!opened.ok()) FAIL(opened.error().message);
  return *opened;
}

WeightPart part_of(std::vector<std::int32_t> experts, std::vector<std::int32_t> tier = {}) {
  WeightPart part;
  part.shards = {{0, 0, 0, 0, 0, kHere}};
  part.experts = {{1, {}}};
  for (const auto e : experts) part.experts[0].slots.push_back({e, kHere});
  if (!tier.empty()) part.tier = {{1, {}}};
  for (const auto e : tier) part.tier[0].slots.push_back({e, kHere});
  return part;
}

/// Loads a version; which one is active counts.
Result<LoadedPart> load(WeightStore& store, const Checkpoint& checkpoint, std::uint64_t version,
                        const WeightPart& part, std::optional<std::uint64_t> active = {}) {
  const std::atomic<bool> cancelled{false};
  std::optional<PlacementVersion> serving;
  if (active) serving = PlacementVersion{*active};
  return store.load(checkpoint, PlacementVersion{version}, part, serving, {2, cancelled, {}});
}

Status load_tier(WeightStore& store, const Checkpoint& checkpoint, std::uint64_t version) {
  const std::atomic<bool> cancelled{false};
  return store.load_tier(checkpoint, PlacementVersion{version}, {2, cancelled, {}});
}

std::uint64_t reads(const Checkpoint& checkpoint, int expert) {
  return checkpoint.reads("model.layers.1.mlp.experts." + std::to_string(expert) +
                          ".up_proj.weight");
}

std::vector<std::int32_t> held_experts(const WeightStore& store) {
  const auto held = store.held();
  return held.experts.empty() ? std::vector<std::int32_t>{} : held.experts[0].experts;
}

std::uint64_t bytes(const Checkpoint& checkpoint, std::uint64_t experts) {
  return shard_bytes(checkpoint.config(), Numerics::kReference, 0, 1) +
         experts * expert_bytes(checkpoint.config(), Numerics::kReference);
}

using Ids = std::vector<std::int32_t>;

TEST_CASE("the next version reads only what it adds, and nothing goes before it is retired to") {
  const auto checkpoint = open();
  WeightStore store;
  CHECK(store.lacks(part_of({0, 1})));
  const auto first = load(store, *checkpoint, 1, part_of({0, 1}));
  REQUIRE(first.ok());
  CHECK(!store.lacks(part_of({0, 1})));
  CHECK(store.held_bytes() == bytes(*checkpoint, 2));
  const auto second = load(store, *checkpoint, 2, part_of({1, 2}), 1);
  REQUIRE(second.ok());
  CHECK(reads(*checkpoint, 0) == 1);
  CHECK(reads(*checkpoint, 1) == 1);
  CHECK(reads(*checkpoint, 2) == 1);
  CHECK(second->shards[0] == first->shards[0]);
  CHECK(second->experts.at(0).at({1, 1}) == first->experts.at(0).at({1, 1}));
  CHECK(held_experts(store) == Ids{0, 1, 2});
  CHECK(store.held_bytes() == bytes(*checkpoint, 3));
  store.retire(PlacementVersion{2});
  CHECK(held_experts(store) == Ids{1, 2});
  CHECK(store.held_bytes() == bytes(*checkpoint, 2));
  CHECK(store.held().shards == std::vector<LayerRange>{{0, 0}});
}

TEST_CASE("a retirement keeps what a pending version has read") {
  const auto checkpoint = open();
  WeightStore store;
  REQUIRE(load(store, *checkpoint, 1, part_of({0, 1})).ok());
  REQUIRE(load(store, *checkpoint, 2, part_of({1}), 1).ok());
  REQUIRE(load(store, *checkpoint, 3, part_of({3}), 2).ok());
  store.retire(PlacementVersion{2});
  CHECK(held_experts(store) == Ids{1, 3});
}

TEST_CASE("what a superseded version has read is kept for the one that takes its place") {
  const auto checkpoint = open();
  WeightStore store;
  REQUIRE(load(store, *checkpoint, 1, part_of({0})).ok());
  REQUIRE(load(store, *checkpoint, 2, part_of({0, 5, 6}), 1).ok());
  REQUIRE(load(store, *checkpoint, 3, part_of({0, 6}), 1).ok());
  CHECK(reads(*checkpoint, 6) == 1);
  store.retire(PlacementVersion{3});
  CHECK(held_experts(store) == Ids{0, 6});
}

TEST_CASE("with nothing that serves, memory goes before more is read") {
  const auto checkpoint = open();
  WeightStore store;
  REQUIRE(load(store, *checkpoint, 7, part_of({0, 1})).ok());
  store.forget_versions();  // another membership: its versions count anew
  CHECK(held_experts(store) == Ids{0, 1});
  REQUIRE(load(store, *checkpoint, 1, part_of({1, 2})).ok());
  CHECK(held_experts(store) == Ids{1, 2});
  CHECK(reads(*checkpoint, 1) == 1);
}

TEST_CASE("a cancelled load keeps what it has read") {
  const auto checkpoint = open();
  WeightStore store;
  std::atomic<bool> cancelled{false};
  const auto stopped = store.load(
      *checkpoint, PlacementVersion{1}, part_of({0, 1, 2, 3}), std::nullopt,
      {1, cancelled, [&](std::uint64_t done, std::uint64_t) { cancelled = done > 0; }});
  REQUIRE(!stopped.ok());
  CHECK(stopped.error().code == ErrorCode::kCancelled);
  CHECK(held_experts(store) == Ids{0});  // experts come first, in their order
  REQUIRE(load(store, *checkpoint, 2, part_of({0, 1})).ok());
  CHECK(reads(*checkpoint, 0) == 1);
}

TEST_CASE("the second tier is read last, within its memory, and promoted without a read") {
  const auto checkpoint = open();
  const std::uint64_t each = expert_bytes(checkpoint->config(), Numerics::kReference);
  WeightStore store(2 * each);
  REQUIRE(load(store, *checkpoint, 1, part_of({0}, {0, 4, 5, 6})).ok());
  CHECK(held_experts(store) == Ids{0});
  REQUIRE(load_tier(store, *checkpoint, 1).ok());
  CHECK(held_experts(store) == Ids{0, 4, 5});  // 6 has no room; 0 is served and takes none
  REQUIRE(load_tier(store, *checkpoint, 1).ok());
  CHECK(reads(*checkpoint, 4) == 1);
  store.retire(PlacementVersion{1});
  CHECK(held_experts(store) == Ids{0, 4, 5});

  CHECK(!store.lacks(part_of({0, 4})));
  const auto promoted = load(store, *checkpoint, 2, part_of({0, 4}, {6}), 1);
  REQUIRE(promoted.ok());
  CHECK(promoted->experts.at(0).contains({1, 4}));
  CHECK(reads(*checkpoint, 4) == 1);
  store.retire(PlacementVersion{2});
  REQUIRE(load_tier(store, *checkpoint, 2).ok());
  CHECK(held_experts(store) == Ids{0, 4, 6});
}

TEST_CASE("without memory of its own there is no second tier") {
  const auto checkpoint = open();
  WeightStore store;
  REQUIRE(load(store, *checkpoint, 1, part_of({0}, {4})).ok());
  REQUIRE(load_tier(store, *checkpoint, 1).ok());
  CHECK(held_experts(store) == Ids{0});
}

TEST_CASE("a checkpoint that is not what it was is an error that names file and tensor") {
  const Folder folder;
  const auto checkpoint = open(folder.string());
  WeightStore store(kPlenty);
  REQUIRE(load(store, *checkpoint, 1, part_of({0, 1})).ok());
  const char* why = "";
  SUBCASE("gone") {
    fs::remove(folder.weights());
    why = "is not there any more";
  }
  SUBCASE("replaced") {
    fs::rename(folder.weights(), folder.string() + "/old");
    fs::copy_file(kModel + std::string("/model.safetensors"), folder.weights());
    why = "has changed";
  }
  SUBCASE("written over") {
    std::ofstream(folder.weights(), std::ios::in | std::ios::binary).seekp(-4, std::ios::end)
        << "abcd";
    fs::last_write_time(folder.weights(), fs::file_time_type::clock::now() + std::chrono::hours(1));
    why = "has changed";
  }
  SUBCASE("shorter") {
    fs::resize_file(folder.weights(), 4096);
    why = "has shrunk";
  }
  const auto broken = load(store, *checkpoint, 2, part_of({1, 2}), 1);
  REQUIRE(!broken.ok());
  const std::string& text = broken.error().message;
  CAPTURE(text);
  CHECK(text.find(why) != std::string::npos);
  CHECK(text.find("model.safetensors") != std::string::npos);
  CHECK(text.find("model.layers.1.mlp.experts.2.") != std::string::npos);
  CHECK(held_experts(store) == Ids{0, 1});  // what serves is still there
  // And what needs no file can still be had.
  CHECK(load(store, *checkpoint, 3, part_of({1}), 1).ok());
}

}  // namespace
}  // namespace troupe
