#include "actors/worker/file_source.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <set>
#include <sstream>
#include <string>
#include <thread>

#include "actors/worker/checkpoint_model.h"
#include "actors/worker/preparation.h"
#include "model/kv_cache.h"
#include "model/spec/sizes.h"
#include "model/weights.h"
#include "runtime/limits.h"
#include "tests/actors/worker/source_stand.h"
#include "tests/model/model_folder.h"
#include "tests/model/pread_hook.h"
#include "tests/patience.h"
#include "tests/promises.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using namespace testing;
using namespace std::chrono_literals;

TEST_CASE("a checkpoint is inspected: its hash, and what its model takes") {
  Source s;
  const auto found = s.inspect();
  REQUIRE(found.ok());
  const auto checkpoint = *Checkpoint::open(kModel);
  CHECK(found->hash == checkpoint->hash());
  const ModelSpec& spec = checkpoint->spec();
  CHECK(found->sizes->expert_bytes(Numerics::kReference) ==
        expert_bytes(spec, Numerics::kReference));
  CHECK(found->sizes->shard_bytes(Numerics::kReference, {0, 1}) ==
        shard_bytes(spec, Numerics::kReference, 0, 1));
  CHECK(found->sizes->cache_bytes(Numerics::kReference, {0, 1}, 8, 16) ==
        kv_cache_bytes(spec, Numerics::kReference, {0, 1, 8, 16}));
  const auto missing = s.inspect("/nowhere");
  REQUIRE(!missing.ok());
  CHECK(missing.error().message.find("/nowhere") != std::string::npos);
}

TEST_CASE("every piece of an order comes before the order is done, in its order") {
  Source s(1);
  const std::string hash = s.inspect()->hash;
  const PartRead read = s.read(order_of(1, hash, {3, 0}, {{0, 0}}));
  CHECK(read.status.ok());
  CHECK(read.version == PlacementVersion{1});
  CHECK(!read.tier);
  REQUIRE(s.pieces.size() == 3);
  CHECK(s.pieces[0].expert == ExpertKey{1, 3});
  CHECK(s.pieces[0].expert_weights != nullptr);
  CHECK(s.pieces[1].expert == ExpertKey{1, 0});
  CHECK(!s.pieces[2].is_expert);
  CHECK(s.pieces[2].layers == LayerRange{0, 0});
  CHECK(s.pieces[2].shard_weights != nullptr);
}

TEST_CASE("several threads read all pieces, each once") {
  Source s(4);
  const std::string hash = s.inspect()->hash;
  REQUIRE(s.read(order_of(1, hash, {0, 1, 2, 3, 4, 5, 6, 7})).status.ok());
  std::set<std::int32_t> read;
  for (const auto& piece : s.pieces) read.insert(piece.expert.expert);
  CHECK(s.pieces.size() == 8);
  CHECK(read.size() == 8);
}

TEST_CASE("an order for nothing needs no file") {
  Source s;
  CHECK(s.read(order_of(1, "abc", {}, {}, "/nowhere")).status.ok());
}

TEST_CASE("a checkpoint that has changed since the worker joined is not read") {
  Source s;
  REQUIRE(s.inspect().ok());
  const PartRead read = s.read(order_of(1, "other", {0}));
  REQUIRE(!read.status.ok());
  CHECK(read.status.error().message.find("is not the one that this worker joined with") !=
        std::string::npos);
  CHECK(s.pieces.empty());
}

TEST_CASE("the second tier is read as the rest") {
  Source s;
  ReadOrder order = order_of(2, s.inspect()->hash, {4});
  order.tier = true;
  const PartRead read = s.read(order);
  CHECK(read.tier);
  CHECK(read.status.ok());
  CHECK(s.pieces.size() == 1);
}

TEST_CASE("a superseded order says nothing of its end, and its pieces come first") {
  Source s(1);
  const std::string hash = s.inspect()->hash;
  s.mail->hold(true);  // the reading waits with its first piece until the next order is there
  s.source.read(order_of(1, hash, {0, 1, 2, 3, 4, 5, 6, 7}));
  REQUIRE(s.mail->held());
  s.source.read(order_of(2, hash, {6}));
  s.mail->hold(false);
  CHECK(s.wait<PartRead>().version == PlacementVersion{2});
  REQUIRE(s.pieces.size() == 2);
  CHECK(s.pieces[0].expert == ExpertKey{1, 0});
  CHECK(s.pieces[1].expert == ExpertKey{1, 6});
}

TEST_CASE("a cancelled order says nothing of its end") {
  Source s(1);
  const std::string hash = s.inspect()->hash;
  s.mail->hold(true);
  s.source.read(order_of(3, hash, {0, 1, 2, 3}));
  REQUIRE(s.mail->held());
  s.source.cancel();
  s.mail->hold(false);
  s.source.read(order_of(4, hash, {}));
  CHECK(s.wait<PartRead>().version == PlacementVersion{4});
  CHECK(s.pieces.size() == 1);
}

TEST_CASE("a part is built after what was ordered before it") {
  Source s;
  auto preparation = std::make_shared<Preparation>();
  preparation->work = std::make_shared<const VersionWork>();
  s.source.build(preparation);
  const PartBuilt built = s.wait<PartBuilt>();
  CHECK(built.preparation == preparation);
  CHECK(built.status.ok());
  CHECK(preparation->routes != nullptr);
}

TEST_CASE("what is let go is freed by another thread") {
  Source s;
  std::promise<std::thread::id> freed;
  PieceTensors piece(new HeldTensors, [&](const HeldTensors* tensors) {
    delete tensors;
    freed.set_value(std::this_thread::get_id());
  });
  Garbage garbage;
  garbage.push_back(std::move(piece));
  s.source.free(std::move(garbage));
  auto where = freed.get_future();
  REQUIRE(where.wait_for(kTestPatience) == std::future_status::ready);
  CHECK(where.get() != std::this_thread::get_id());
}

TEST_CASE("a checkpoint that is there no more as it was is an error that names the file") {
  const ModelFolder folder(kModel);
  Source s;
  const std::string hash = s.inspect(folder.string())->hash;
  REQUIRE(s.read(order_of(1, hash, {0, 1}, {{0, 0}}, folder.string())).status.ok());
  const char* why = "";
  SUBCASE("gone") {
    fs::remove(folder.weights());
    why = "is not there any more";
  }
  SUBCASE("shorter") {
    fs::resize_file(folder.weights(), 4096);
    why = "truncated";
  }
  SUBCASE("another one's") {
    const std::string path = folder.string() + "/config.json";
    std::stringstream told;
    told << std::ifstream(path).rdbuf();
    std::ofstream(path) << "{\"another\": 1, " << told.str().substr(1);
    fs::last_write_time(folder.weights(), fs::file_time_type::clock::now() + std::chrono::hours(1));
    why = "it is another checkpoint now";
  }
  const PartRead broken = s.read(order_of(2, hash, {2}, {}, folder.string()));
  REQUIRE(!broken.status.ok());
  const std::string& text = broken.status.error().message;
  CAPTURE(text);
  CHECK(text.find(why) != std::string::npos);
  CHECK(text.find("model.safetensors") != std::string::npos);
  CHECK(s.pieces.empty());
  // And what needs no file can still be had.
  CHECK(s.read(order_of(3, hash, {}, {}, folder.string())).status.ok());
}

bool has(const Status& status, const std::string& words) {
  CAPTURE(words);
  CAPTURE((status.ok() ? std::string() : status.error().message));
  return !status.ok() && status.error().message.find(words) != std::string::npos;
}

TEST_CASE("files that have changed are opened afresh, and what comes says what they are now") {
  const ModelFolder folder(kModel);
  const fs::path weights = folder.weights();
  Source s;
  const std::string hash = s.inspect(folder.string())->hash;
  const auto read = [&](std::uint64_t version) {
    s.pieces.clear();
    const Status done = s.read(order_of(version, hash, {0}, {}, folder.string())).status;
    REQUIRE_MESSAGE(done.ok(), (done.ok() ? std::string() : done.error().message));
    REQUIRE(s.pieces.size() == 1);
    std::vector<TensorProof> proofs;
    for (const HeldTensor& tensor : *s.pieces[0].tensors) proofs.push_back(tensor.proof);
    return proofs;
  };
  const auto before = read(1);
  CHECK(s.changed.empty());
  bool same = true;
  SUBCASE("touched") {
    fs::last_write_time(weights, fs::file_time_type::clock::now() + std::chrono::hours(1));
  }
  SUBCASE("fetched again") {
    fs::rename(weights, folder.string() + "/old");
    fs::copy_file(kModel + "/model.safetensors", weights);
  }
  SUBCASE("a link that was switched, and back") {
    fs::rename(weights, folder.string() + "/old");
    fs::copy_file(kModel + "/model.safetensors", folder.string() + "/new");
    fs::create_symlink("new", weights);
    CHECK(read(2) == before);
    CHECK(s.changed.size() == 1);
    s.changed.clear();
    fs::remove(weights);
    fs::create_symlink("old", weights);
  }
  SUBCASE("written over, the same layout") {
    const std::string expert = "model.layers.1.mlp.experts.0.";
    folder.overwrite(folder.begin(expert + "gate_proj.weight"),
                     folder.stored(expert + "up_proj.weight"));
    fs::last_write_time(weights, fs::file_time_type::clock::now() + std::chrono::hours(1));
    same = false;
  }
  CHECK((read(3) == before) == same);
  REQUIRE(s.changed.size() == 1);
  CHECK(s.changed[0].find("model.safetensors has changed since it was opened") !=
        std::string::npos);
  CHECK(s.inspect(folder.string())->hash == hash);
}

TEST_CASE("a file that was cut short is read again once it is whole") {
  const ModelFolder folder(kModel);
  Source s;
  const std::string hash = s.inspect(folder.string())->hash;
  fs::resize_file(folder.weights(), 4096);
  CHECK(!s.read(order_of(1, hash, {0}, {}, folder.string())).status.ok());
  fs::copy_file(kModel + "/model.safetensors", folder.weights(),
                fs::copy_options::overwrite_existing);
  CHECK(s.read(order_of(2, hash, {0}, {}, folder.string())).status.ok());
  CHECK(s.inspect(folder.string()).ok());
}

// --- Storage that hangs -------------------------------------------------------------------------

/// Reads of weights hang from now on, as long as it lives.
class Hang {
 public:
  Hang()
      : hook_([state = state_](int, void*, std::size_t, off_t) -> ssize_t {
          ++state->hanging;
          state->released.wait();
          return -2;
        }) {}
  ~Hang() { state_->release.set_value(); }
  int hanging() const { return state_->hanging; }

 private:
  struct State {
    std::atomic<int> hanging{0};
    std::promise<void> release;
    std::shared_future<void> released{release.get_future()};
  };
  const std::shared_ptr<State> state_ = std::make_shared<State>();
  testing::PreadHook hook_;
};

TEST_CASE("a read that hangs costs a thread: newer orders go on, until too many hang") {
  const ModelFolder folder(kModel);
  std::optional<Hang> hang;
  const auto begun = std::chrono::steady_clock::now();
  {
    Source s(1);
    const std::string hash = s.inspect(folder.string())->hash;
    hang.emplace();
    for (std::uint64_t version = 1; version <= limits::kHungReadsMax; ++version) {
      s.source.read(order_of(version, hash, {0}, {}, folder.string()));
      while (hang->hanging() < static_cast<int>(version)) std::this_thread::sleep_for(1ms);
    }
    // What needs no file goes on all the same, and what does fails at once, with the reason.
    CHECK(s.read(order_of(10, hash, {}, {}, folder.string())).status.ok());
    const PartRead read = s.read(order_of(11, hash, {0}, {}, folder.string()));
    CHECK(has(read.status, "hangs"));
    CHECK(!passing(read.status.error().code));
    CHECK(s.pieces.empty());
  }
  // And the end of the process waits for none of them: the source is gone by now.
  promised("done beside reads that hang", std::chrono::steady_clock::now() - begun, 30s);
  hang.reset();
  std::this_thread::sleep_for(50ms);  // they wake up, and touch nothing that is gone
}

TEST_CASE("storage that answers again is used again") {
  const ModelFolder folder(kModel);
  Source s(1);
  const std::string hash = s.inspect(folder.string())->hash;
  {
    Hang hang;
    s.source.read(order_of(1, hash, {0}, {}, folder.string()));
    while (hang.hanging() < 1) std::this_thread::sleep_for(1ms);
    CHECK(s.read(order_of(2, hash, {}, {}, folder.string())).status.ok());
  }
  CHECK(s.read(order_of(3, hash, {0}, {}, folder.string())).status.ok());
  CHECK(s.pieces.size() == 1);
}

}  // namespace
}  // namespace troupe
