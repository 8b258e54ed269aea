// Weights in a device's memory: they come while they are read, prove themselves there, and are
// copied on.
#include "model/placed_weights.h"

#include <doctest/doctest.h>

#include "kernels/cuda/twin/backend.h"
#include "tests/model/local_model.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using namespace testing;
using kernels::Accelerator;

std::shared_ptr<Accelerator> open_device(std::uint64_t bytes, std::uint64_t seed = 1,
                                         kernels::InjectedFailure injected = {}) {
  return must(kernels::failing_twin_backend(injected).accelerator({0, bytes, nullptr, seed}));
}

const auto always = [] { return true; };

/// Turns a bit of the device's memory.
void flip(Accelerator& device, const std::byte* there) {
  std::byte byte{};
  device.download({&byte, 1}, there);
  byte ^= std::byte{8};
  device.upload(const_cast<std::byte*>(there), {&byte, 1});
}

TEST_CASE("weights go to a device while they are read, and tell what lies there") {
  if (kernels::cuda_twin_backend() == nullptr) return;
  for (const char* folder : {"tests/golden/v3-fp8", "tests/golden/v3-int4", "tests/golden/qwen2"}) {
    CAPTURE(std::string(folder));
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto last = checkpoint->spec().num_layers() - 1;
    const auto device = open_device(256u << 20);
    const auto there = must(load_shard(*checkpoint, Numerics::kBf16, 0, last, {.device = device}));
    const auto here = must(load_shard(*checkpoint, Numerics::kBf16, 0, last));
    CHECK(there->device == device.get());
    CHECK(here->device == nullptr);
    REQUIRE(there->tensors.size() == here->tensors.size());
    for (std::size_t i = 0; i < here->tensors.size(); ++i) {
      const HeldTensor& tensor = there->tensors[i];
      CHECK(tensor.proof == here->tensors[i].proof);
      CHECK(tensor.device == device);
      CHECK(is_as_packed(tensor, always) == true);
      if (tensor.memory.empty()) continue;
      flip(*device, tensor.memory.back().data() + tensor.memory.back().size() - 1);
      CHECK(is_as_packed(tensor, always) == false);
    }
  }
}

TEST_CASE("what arrives on a device otherwise than it was packed is not used") {
  if (kernels::cuda_twin_backend() == nullptr) return;
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const auto whole = must(load_expert(*checkpoint, Numerics::kBf16, 1, 2));
  ExpertWeights wrong;
  wrong.mlp.gate = whole->mlp.gate.placed({whole, whole->mlp.gate.memory().data()});
  wrong.tensors.push_back(whole->tensors.front());
  REQUIRE(wrong.tensors.front().memory.front().data() == wrong.mlp.gate.memory().data());
  wrong.tensors.front().proof.packed->low ^= 1;
  const auto copied = copy_to(open_device(16u << 20), wrong);
  REQUIRE(!copied.ok());
  CHECK(copied.error().code == ErrorCode::kCorrupt);
  CHECK(copied.error().message.find(whole->tensors.front().proof.tensor) != std::string::npos);
}

TEST_CASE("weights are copied from device to device, and no copy is the other") {
  if (kernels::cuda_twin_backend() == nullptr) return;
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/gpt-oss")));
  const auto one = open_device(64u << 20, 1), other = open_device(64u << 20, 2);
  const auto first = must(load_expert(*checkpoint, Numerics::kBf16, 1, 3, {.device = one}));
  const auto second = must(copy_to(other, *first));
  CHECK(second->device == other.get());
  REQUIRE(second->tensors.size() == first->tensors.size());
  for (std::size_t i = 0; i < first->tensors.size(); ++i) {
    if (first->tensors[i].memory.empty()) continue;
    const std::byte* const byte = second->tensors[i].memory.front().data();
    flip(*other, byte);
    CHECK(is_as_packed(first->tensors[i], always) == true);
    CHECK(is_as_packed(second->tensors[i], always) == false);
    flip(*other, byte);
    CHECK(is_as_packed(second->tensors[i], always) == true);
  }
}

TEST_CASE("a device without room, and one that has failed, are told apart") {
  if (kernels::cuda_twin_backend() == nullptr) return;
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  const auto lost = open_device(64u << 20, 1, {kernels::InjectedFailure::What::kLost, 0});
  const auto expert = must(load_expert(*checkpoint, Numerics::kBf16, 1, 2, {.device = lost}));
  const auto memory = lost->memory(4);
  const float number = 1;
  CHECK_THROWS_AS(lost->write(memory.get(), &number, 4), kernels::AcceleratorFailed);
  CHECK_FALSE(is_as_packed(expert->tensors.front(), always).has_value());
  CHECK_THROWS_AS(load_expert(*checkpoint, Numerics::kBf16, 1, 3, {.device = lost}),
                  kernels::AcceleratorFailed);
  // Nobody gives any of it back: it is waited for, and refused.
  const auto small = open_device(64u << 10);
  const auto all = small->memory(48u << 10);
  const auto refused = load_expert(*checkpoint, Numerics::kBf16, 1, 2, {.device = small});
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace troupe
