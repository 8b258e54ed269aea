#include <doctest/doctest.h>

#include <thread>

#include "kernels/cuda/twin/backend.h"
#include "model/weights.h"
#include "tests/actors/worker/source_stand.h"
#include "tests/patience.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using namespace testing;
using namespace std::chrono_literals;

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
  const auto end = std::chrono::steady_clock::now() + kTestPatience;
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
  const kernels::Backend lost =
      kernels::failing_twin_backend({kernels::InjectedFailure::What::kLost, 0});
  const std::shared_ptr<kernels::Accelerator> device = *lost.accelerator({0, 64u << 20});
  Source s(2, {{0, kAnyNumaNode, device}});
  REQUIRE(s.read(some_order(s.inspect()->hash)).status.ok());
  const std::weak_ptr<const HeldTensors> last = s.pieces[0].tensors;
  Garbage garbage = {s.pieces[0].tensors};
  s.pieces.clear();
  const auto memory = device->memory(1);
  CHECK_THROWS_AS(device->write(memory.get(), &garbage, 1), kernels::AcceleratorFailed);
  s.source.free(std::move(garbage));
  const auto end = std::chrono::steady_clock::now() + kTestPatience;
  while (!last.expired() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(1ms);
  CHECK(last.expired());
  s.source.prove_copies();
  (void)s.wait<CopiesProven>();
}

TEST_CASE("copies of every format prove themselves, scales and stacked experts too") {
  for (const char* model : {"v3-fp8", "v3-int4", "v3-awq", "gpt-oss", "qwen2"}) {
    const std::string folder = testing::source_path("tests/golden/" + std::string(model));
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
  const auto until = std::chrono::steady_clock::now() + kTestPatience;
  while (s.source.proofs().parts > 0 && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(10ms);
  CHECK(s.source.proofs().parts == 0);
}

}  // namespace
}  // namespace troupe
