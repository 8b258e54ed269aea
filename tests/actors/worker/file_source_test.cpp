#include "actors/worker/file_source.h"

#include <doctest/doctest.h>
#include <stdlib.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <set>
#include <thread>

#include "actors/worker/checkpoint_model.h"
#include "actors/worker/preparation.h"
#include "kernels/cuda/twin/backend.h"
#include "model/kv_cache.h"
#include "model/spec/sizes.h"
#include "model/weights.h"
#include "runtime/limits.h"
#include "tests/actors/effects.h"
#include "tests/actors/mail_queue.h"
#include "tests/model/pread_hook.h"

namespace troupe {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;

constexpr const char* kModel = TROUPE_SOURCE_DIR "/tests/golden/v2-lite";

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

struct Source {
  Post post;
  Ref<NodeAgentInbox> agent{NodeId{9}, Incarnation{1}};
  std::shared_ptr<testing::MailQueue> mail = std::make_shared<testing::MailQueue>();
  FileSource source;
  std::vector<PieceRead> pieces;  ///< that came before the news that was waited for

  explicit Source(int threads = 2, std::vector<FileSource::Home> homes = {})
      : source(post, threads, std::move(homes)) {
    post.attach(agent.address, mail);
    source.listen(agent);
  }
  ~Source() { mail->hold(false); }

  /// Waits for news of that kind.
  template <class T>
  T wait() {
    while (const auto next = mail->next()) {
      if (const auto* found = testing::local<NodeAgentInbox, T>(*next)) return *found;
      if (const auto* piece = testing::local<NodeAgentInbox, PieceRead>(*next))
        pieces.push_back(*piece);
      else
        FAIL("other news came first");
    }
    FAIL("nothing came");
    std::abort();
  }
  Result<InspectedCheckpoint> inspect(const std::string& folder = kModel) {
    source.inspect(folder);
    return wait<CheckpointInspected>().checkpoint;
  }
  PartRead read(const ReadOrder& order) {
    pieces.clear();
    source.read(order);
    return wait<PartRead>();
  }
};

ReadOrder order_of(std::uint64_t version, const std::string& hash,
                   std::vector<std::int32_t> experts, std::vector<LayerRange> shards = {},
                   const std::string& folder = kModel) {
  ReadOrder order;
  order.version = PlacementVersion{version};
  order.model_path = folder;
  order.checkpoint_hash = hash;
  for (const auto e : experts) order.experts.push_back({1, e});
  order.shards = std::move(shards);
  return order;
}

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
  REQUIRE(where.wait_for(5s) == std::future_status::ready);
  CHECK(where.get() != std::this_thread::get_id());
}

TEST_CASE("a checkpoint that is not what it was is an error that names file and tensor") {
  const Folder folder;
  Source s;
  const std::string hash = s.inspect(folder.string())->hash;
  REQUIRE(s.read(order_of(1, hash, {0, 1}, {{0, 0}}, folder.string())).status.ok());
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
  const PartRead broken = s.read(order_of(2, hash, {2}, {}, folder.string()));
  REQUIRE(!broken.status.ok());
  const std::string& text = broken.status.error().message;
  CAPTURE(text);
  CHECK(text.find(why) != std::string::npos);
  CHECK(text.find("model.safetensors") != std::string::npos);
  CHECK(text.find("model.layers.1.mlp.experts.2.") != std::string::npos);
  CHECK(s.pieces.empty());
  // And what needs no file can still be had.
  CHECK(s.read(order_of(3, hash, {}, {}, folder.string())).status.ok());
}

bool has(const Status& status, const std::string& words) {
  CAPTURE(words);
  CAPTURE((status.ok() ? std::string() : status.error().message));
  return !status.ok() && status.error().message.find(words) != std::string::npos;
}

TEST_CASE("a doubted checkpoint is not trusted again, until it is another") {
  const Folder folder;
  Source s;
  const std::string hash = s.inspect(folder.string())->hash;
  fs::resize_file(folder.weights(), 4096);
  CHECK(has(s.read(order_of(1, hash, {0}, {}, folder.string())).status, "has shrunk"));
  fs::copy_file(kModel + std::string("/model.safetensors"), folder.weights(),
                fs::copy_options::overwrite_existing);
  CHECK(has(s.read(order_of(2, hash, {0}, {}, folder.string())).status, "has shrunk"));
  const auto again = s.inspect(folder.string());
  REQUIRE(!again.ok());
  CHECK(again.error().message.find("has shrunk") != std::string::npos);
  // The head serves another model.
  const std::string other = s.inspect(kModel)->hash;
  CHECK(s.read(order_of(3, other, {0})).status.ok());
}

TEST_CASE("a model that is known already is read from the files as they were opened first") {
  const Folder folder;
  Source s;
  const std::string hash = s.inspect(folder.string())->hash;
  // In place, the same layout.
  std::ofstream(folder.weights(), std::ios::in | std::ios::binary).seekp(-4, std::ios::end)
      << "abcd";
  CHECK(s.inspect(folder.string())->hash == hash);
  CHECK(has(s.read(order_of(1, hash, {0}, {}, folder.string())).status, "has changed"));
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
  const Folder folder;
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
  CHECK(std::chrono::steady_clock::now() - begun < 30s);
  hang.reset();
  std::this_thread::sleep_for(50ms);  // they wake up, and touch nothing that is gone
}

TEST_CASE("storage that answers again is used again") {
  const Folder folder;
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

// --- Proofs -------------------------------------------------------------------------------------

TEST_CASE("questions for proofs are answered from the storage, in their order") {
  Source s;
  const std::string hash = s.inspect()->hash;
  REQUIRE(s.read(order_of(1, hash, {3})).status.ok());
  REQUIRE(s.pieces.size() == 1);
  const HeldTensor& held = s.pieces[0].tensors->front();
  s.source.prove({held.proof.tensor});
  s.source.prove({"model.norm.weight", "model.ghost", "lm_head.weight"});
  const TensorProofs first = s.wait<ProofsRead>().proofs;
  CHECK(first.fresh);
  REQUIRE(first.tensors.size() == 1);
  CHECK(first.tensors[0].stored == held.proof.stored);
  CHECK(!first.tensors[0].packed);
  const TensorProofs second = s.wait<ProofsRead>().proofs;
  REQUIRE(second.tensors.size() == 1);
  CHECK(second.tensors[0].tensor == "model.norm.weight");
  REQUIRE(second.error);
  CHECK(second.error->message.find("model.ghost") != std::string::npos);
}

/// The host's memory, or a device's.
std::vector<FileSource::Home> some_home(bool device) {
  if (!device) return {};
  return {{0, kAnyNumaNode, *kernels::cuda_twin_backend()->accelerator({0, 64u << 20})}};
}

void flip(const HeldTensor& tensor) {
  auto* const byte = const_cast<std::byte*>(tensor.memory.front().data() + 12);
  if (!tensor.device) {
    *byte ^= std::byte{4};
    return;
  }
  std::byte copy{};
  tensor.device->download({&copy, 1}, byte);
  copy ^= std::byte{4};
  tensor.device->upload(byte, {&copy, 1});
}

/// Three experts and a layer; all for the first device, if there is one.
ReadOrder some_order(const std::string& hash) {
  ReadOrder order = order_of(1, hash, {1, 2, 3}, {{0, 0}});
  order.numerics = Numerics::kBf16;
  order.devices = {0, 0, 0, 0};
  return order;
}

void check_flip_is_found(bool on_device) {
  Source s(2, some_home(on_device));
  REQUIRE(s.read(some_order(s.inspect()->hash)).status.ok());
  CHECK(s.source.proofs().parts >= 9);
  s.source.prove_copies();
  (void)s.wait<CopiesProven>();
  const PieceRead& piece = s.pieces[1];
  const HeldTensor& bad = piece.tensors->at(2);
  CHECK((bad.device != nullptr) == on_device);
  CHECK(piece.place.has_value() == on_device);
  flip(bad);
  s.source.prove_copies();
  const CopyDiffers found = s.wait<CopyDiffers>();
  CHECK(found.piece == piece.tensors);
  CHECK(found.proof.tensor == bad.proof.tensor);
  CHECK(found.proof.reason.find("model.safetensors") != std::string::npos);
  (void)s.wait<CopiesProven>();
  // It is not looked at any more.
  s.source.prove_copies();
  (void)s.wait<CopiesProven>();
}

TEST_CASE("a bit that flips in memory is found when all copies are looked at, and before") {
  SUBCASE("the host's") { check_flip_is_found(false); }
  SUBCASE("a device's") {
    if (kernels::cuda_twin_backend() != nullptr) check_flip_is_found(true);
  }
}

void check_flip_is_found_at_last(bool on_device) {
  Source s(2, some_home(on_device));
  REQUIRE(s.read(some_order(s.inspect()->hash)).status.ok());
  const std::string name = s.pieces[1].tensors->at(2).proof.tensor;
  flip(s.pieces[1].tensors->at(2));
  Garbage garbage;
  for (std::size_t i = 0; i < 3; ++i) garbage.push_back(s.pieces[i].tensors);
  const std::weak_ptr<const HeldTensors> last = s.pieces[2].tensors;
  s.pieces.resize(0);
  s.source.free(std::move(garbage));
  CHECK(s.wait<CopyDiffers>().proof.tensor == name);
  const auto end = std::chrono::steady_clock::now() + 5s;
  while (!last.expired() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  CHECK(last.expired());
}

TEST_CASE("a bit that flips in memory is found when its copy is let go") {
  SUBCASE("the host's") { check_flip_is_found_at_last(false); }
  SUBCASE("a device's") {
    if (kernels::cuda_twin_backend() != nullptr) check_flip_is_found_at_last(true);
  }
}

TEST_CASE("a device's pieces are copied to another, and read where they turn out to be wrong") {
  if (kernels::cuda_twin_backend() == nullptr) return;
  const auto device = [](std::uint64_t seed) {
    return *kernels::cuda_twin_backend()->accelerator({0, 64u << 20, nullptr, seed});
  };
  const auto other = device(2);
  Source s(2, {{0, kAnyNumaNode, device(1)}, {1, kAnyNumaNode, other}});
  ReadOrder order = some_order(s.inspect()->hash);
  REQUIRE(s.read(order).status.ok());
  order.version = PlacementVersion{2};
  order.devices = {1, 1, 1, 1};
  for (const ExpertKey& key : order.experts)
    for (const PieceRead& piece : s.pieces)
      if (piece.is_expert && piece.expert == key)
        order.expert_sources.push_back(piece.expert_weights);
  for (const PieceRead& piece : s.pieces)
    if (!piece.is_expert) order.shard_sources.push_back(piece.shard_weights);
  REQUIRE(order.copies());
  SUBCASE("all of them right") {}
  SUBCASE("some of them wrong") {
    flip(order.expert_sources[1]->tensors[2]);
    flip(order.shard_sources[0]->tensors[1]);
  }
  REQUIRE(s.read(order).status.ok());
  REQUIRE(s.pieces.size() == 4);
  for (const PieceRead& piece : s.pieces) {
    CHECK(piece.place == 1);
    for (const HeldTensor& tensor : *piece.tensors) {
      CHECK(tensor.device == other);
      CHECK(is_as_packed(tensor, [] { return true; }) == true);
    }
  }
}

TEST_CASE("what a device that has failed holds is let go of") {
  if (kernels::cuda_twin_backend() == nullptr) return;
  const std::shared_ptr<kernels::Accelerator> device =
      *kernels::cuda_twin_backend()->accelerator(
          {0, 64u << 20, nullptr, 0, {kernels::InjectedFailure::What::kLost, 0}});
  Source s(2, {{0, kAnyNumaNode, device}});
  REQUIRE(s.read(some_order(s.inspect()->hash)).status.ok());
  const std::weak_ptr<const HeldTensors> last = s.pieces[0].tensors;
  Garbage garbage = {s.pieces[0].tensors};
  s.pieces.clear();
  const auto memory = device->memory(1);
  CHECK_THROWS_AS(device->write(memory.get(), &garbage, 1), kernels::AcceleratorFailed);
  s.source.free(std::move(garbage));
  const auto end = std::chrono::steady_clock::now() + 5s;
  while (!last.expired() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  CHECK(last.expired());
  s.source.prove_copies();
  (void)s.wait<CopiesProven>();
}

TEST_CASE("copies of every format prove themselves, scales and stacked experts too") {
  for (const char* model : {"v3-fp8", "v3-int4", "v3-awq", "gpt-oss", "qwen2"}) {
    const std::string folder = TROUPE_SOURCE_DIR "/tests/golden/" + std::string(model);
    CAPTURE(folder);
    Source s;
    const auto found = s.inspect(folder);
    REQUIRE(found.ok());
    const std::vector<std::int32_t> experts =
        std::string(model) == "qwen2" ? std::vector<std::int32_t>{} : std::vector<std::int32_t>{2};
    auto order = order_of(1, found->hash, experts, {{0, 1}}, folder);
    order.numerics = Numerics::kBf16;
    REQUIRE(s.read(order).status.ok());
    CHECK(s.pieces.size() == experts.size() + 1);
    s.source.prove_copies();
    (void)s.wait<CopiesProven>();  // and no CopyDiffers before it
  }
}

TEST_CASE("pieces that nobody holds any more do not count") {
  Source s;
  const std::string hash = s.inspect()->hash;
  REQUIRE(s.read(order_of(1, hash, {1})).status.ok());
  CHECK(s.source.proofs().parts == 3);
  s.pieces.clear();
  const auto until = std::chrono::steady_clock::now() + 20s;
  while (s.source.proofs().parts > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(10ms);
  CHECK(s.source.proofs().parts == 0);
}

}  // namespace
}  // namespace troupe
