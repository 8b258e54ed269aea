// Every format on its way from the file into memory: the numbers that it becomes, what is proved of
// it, what it takes, and the defects that only its numbers show.

#include <doctest/doctest.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/linear.h"
#include "model/spec/sizes.h"
#include "model/weights.h"
#include "runtime/float_mode.h"
#include "runtime/xxh3.h"
#include "tests/model/model_folder.h"
#include "tests/model/must.h"
#include "tests/model/proofs_of.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using testing::ModelFolder;
using testing::must;
using testing::proofs_of;
using testing::source_path;

constexpr const char* kGoldens[] = {
    "v3",    "v2-lite", "v3-fp8",    "v3-fp8-ue8m0", "v3-int4", "v3-awq",           "llama",
    "qwen2", "qwen3",   "qwen3-moe", "glm4-moe",     "gpt-oss", "llama-fp8-dynamic"};

std::string folder_of(const std::string& golden) { return source_path("tests/golden/" + golden); }

std::uint64_t bytes_of(const kernels::GatedMlp& mlp) {
  std::uint64_t bytes = 0;
  for (const auto* w :
       {&mlp.gate, &mlp.up, &mlp.down, &mlp.gate_bias, &mlp.up_bias, &mlp.down_bias})
    bytes += w->bytes();
  return bytes;
}

void check_held(const HeldTensors& tensors, std::vector<TensorProof>& loaded) {
  for (const auto& tensor : tensors) {
    Xxh3 memory;
    for (const auto part : tensor.memory) memory.add(part);
    if (tensor.memory.empty())
      CHECK_FALSE(tensor.proof.packed.has_value());
    else
      CHECK(tensor.proof.packed == memory.digest());
    loaded.push_back(tensor.proof);
    loaded.back().packed.reset();
  }
}

TEST_CASE("loading says what every tensor was, what it became, and takes what was reckoned") {
  for (const char* golden : kGoldens)
    for (const Numerics numerics : {Numerics::kReference, Numerics::kBf16}) {
      CAPTURE(std::string(golden));
      const auto checkpoint = must(Checkpoint::open(folder_of(golden)));
      const ModelSpec& spec = checkpoint->spec();
      const std::int32_t last = spec.num_layers() - 1;
      const auto shard = must(load_shard(*checkpoint, numerics, 0, last));
      std::uint64_t held =
          shard->embedding.bytes() + shard->final_norm.bytes() + shard->head.bytes();
      for (const auto& layer : shard->layers) {
        held += bytes_of(layer.mlp);
        for (const auto& weight : layer.by_role) held += weight.bytes();
      }
      CHECK(held == shard_bytes(spec, numerics, 0, last));
      std::vector<TensorProof> loaded;
      check_held(shard->tensors, loaded);
      for (std::int32_t layer = 0; layer <= last; ++layer)
        for (std::int32_t e = 0; e < spec.num_experts(); ++e) {
          const LayerSpec& of = spec.layers[static_cast<std::size_t>(layer)];
          if (!of.has_experts()) continue;
          const auto expert = must(load_expert(*checkpoint, numerics, layer, e));
          CHECK(bytes_of(expert->mlp) == expert_bytes(spec, numerics));
          check_held(expert->tensors, loaded);
        }
      // Each tensor once, but for a tied embedding and those of MTP layers; and the storage itself
      // says the same.
      for (const auto& name : checkpoint->names()) {
        CAPTURE(name);
        const bool mtp = name.starts_with("model.layers." + std::to_string(last + 1) + ".");
        const bool tied = std::string(golden) == "qwen2" && name.starts_with("model.embed");
        const bool stacked =
            std::string(golden) == "gpt-oss" && name.find("mlp.experts.") != std::string::npos;
        CHECK(checkpoint->reads(name) == (mtp ? 0 : tied ? 2 : stacked ? 10 : 1));
      }
      std::vector<std::string> names;
      for (const auto& proof : loaded) names.push_back(proof.tensor);
      auto stored = must(proofs_of(*checkpoint, names));
      std::ranges::sort(stored, {}, &TensorProof::tensor);
      std::ranges::sort(loaded, {}, &TensorProof::tensor);
      CHECK(stored == loaded);
    }
}

/// Row `row` of a weight under `reference`: what it gives for the unit vectors.
std::vector<float> row_of(const kernels::Weight& w, std::int64_t row) {
  set_float_mode();
  kernels::Stream stream({.numerics = Numerics::kReference, .family = CpuFamily::kBaseline});
  kernels::Stream::Scope scope(stream);
  const auto x = stream.alloc(w.k(), w.k());
  auto* ones = static_cast<float*>(x.data);
  for (std::int64_t i = 0; i < w.k() * w.k(); ++i) ones[i] = i / w.k() == i % w.k() ? 1.0f : 0.0f;
  const auto y = stream.alloc(w.k(), w.n());
  kernels::linear(stream, w, kernels::prepare(stream, x, w), y);
  std::vector<float> out;
  for (std::int64_t i = 0; i < w.k(); ++i)
    out.push_back(static_cast<const float*>(y.data)[i * w.n() + row]);
  return out;
}

template <class T>
T at(const std::string& bytes, std::size_t index) {
  T value;
  std::memcpy(&value, bytes.data() + index * sizeof(T), sizeof(T));
  return value;
}

float bf16_at(const std::string& bytes, std::size_t index) {
  const std::uint32_t bits = std::uint32_t{at<std::uint16_t>(bytes, index)} << 16;
  float value;
  std::memcpy(&value, &bits, sizeof value);
  return value;
}

float f16_at(const std::string& bytes, std::size_t index) {
  const std::uint16_t h = at<std::uint16_t>(bytes, index);
  const int exponent = h >> 10 & 31;
  const float m = static_cast<float>(h & 1023);
  const float value = exponent == 0 ? std::ldexp(m, -24) : std::ldexp(m + 1024, exponent - 25);
  return h & 0x8000 ? -value : value;
}

TEST_CASE("int4 of Kimi is what the words say") {
  const ModelFolder folder(folder_of("v3-int4"));
  const std::string module = "model.layers.1.mlp.experts.5.up_proj";
  const auto words = folder.stored(module + ".weight_packed");
  const auto scales = folder.stored(module + ".weight_scale");
  const auto expert =
      must(load_expert(*must(Checkpoint::open(folder.string())), Numerics::kReference, 1, 5));
  for (const std::int64_t row : {0, 37, 63}) {
    const auto got = row_of(expert->mlp.up, row);
    for (std::size_t c = 0; c < 128; ++c) {
      const auto word = at<std::uint32_t>(words, static_cast<std::size_t>(row) * 16 + c / 8);
      const float code = static_cast<float>(static_cast<int>(word >> 4 * (c % 8) & 15) - 8);
      CHECK(got[c] == code * bf16_at(scales, static_cast<std::size_t>(row) * 4 + c / 32));
    }
  }
}

TEST_CASE("AWQ is turned") {
  const ModelFolder folder(folder_of("v3-awq"));
  const std::string module = "model.layers.1.mlp.experts.5.down_proj";  // [128, 64]
  const auto words = folder.stored(module + ".qweight"), zeros = folder.stored(module + ".qzeros");
  const auto scales = folder.stored(module + ".scales");
  const auto expert =
      must(load_expert(*must(Checkpoint::open(folder.string())), Numerics::kReference, 1, 5));
  constexpr int kNibble[8] = {0, 4, 1, 5, 2, 6, 3, 7};  // of outputs 0 to 7
  for (const std::size_t row : {0u, 1u, 77u, 127u}) {
    const auto got = row_of(expert->mlp.down, static_cast<std::int64_t>(row));
    const int shift = 4 * kNibble[row % 8];
    for (std::size_t c = 0; c < 64; ++c) {
      const int code = static_cast<int>(at<std::uint32_t>(words, c * 16 + row / 8) >> shift & 15);
      const int zero =
          static_cast<int>(at<std::uint32_t>(zeros, c / 32 * 16 + row / 8) >> shift & 15);
      CHECK(got[c] == static_cast<float>(code - zero) * f16_at(scales, c / 32 * 128 + row));
    }
  }
}

TEST_CASE("gate and up of gpt-oss alternate in one tensor") {
  const ModelFolder folder(folder_of("gpt-oss"));
  const std::string module = "model.layers.1.mlp.experts.gate_up_proj";  // [10, 192, 5, 16]
  const auto blocks = folder.stored(module + "_blocks"), scales = folder.stored(module + "_scales");
  const auto bias = folder.stored(module + "_bias");
  const auto expert =
      must(load_expert(*must(Checkpoint::open(folder.string())), Numerics::kReference, 1, 7));
  constexpr float kCodes[8] = {0, 0.5f, 1, 1.5f, 2, 3, 4, 6};
  for (const std::size_t row : {0u, 1u, 100u, 191u}) {
    const auto& half = row % 2 == 0 ? expert->mlp.gate : expert->mlp.up;
    const auto got = row_of(half, static_cast<std::int64_t>(row / 2));
    const std::size_t group = (7 * 192 + row) * 5;
    for (std::size_t c = 0; c < 160; ++c) {
      const auto byte = at<std::uint8_t>(blocks, (group + c / 32) * 16 + c % 32 / 2);
      const int code = c % 2 == 0 ? byte & 15 : byte >> 4;
      const float value = code & 8 ? -kCodes[code & 7] : kCodes[code & 7];
      CHECK(got[c] == std::ldexp(value, at<std::uint8_t>(scales, group + c / 32) - 127));
    }
    const auto& half_bias = row % 2 == 0 ? expert->mlp.gate_bias : expert->mlp.up_bias;
    CHECK(kernels::vector_of(half_bias)[row / 2] == bf16_at(bias, 7 * 192 + row));
  }
}

TEST_CASE("defects that only the numbers show") {
  struct Case {
    const char* golden;
    const char* tensor;
    std::uint64_t at;  ///< byte
    std::string bytes;
    const char* said;  ///< null: it is fine
  };
  const std::string e = "model.layers.1.mlp.experts.5.";
  const std::string scale_inv = e + "up_proj.weight_scale_inv", fp8 = e + "up_proj.weight",
                    packed = e + "up_proj.weight_scale", shape = e + "up_proj.weight_shape",
                    awq = e + "up_proj.scales";
  const std::string mx = "model.layers.1.mlp.experts.gate_up_proj_scales";
  const auto word = [](std::uint32_t w) {
    return std::string(reinterpret_cast<const char*>(&w), sizeof w);
  };
  const Case cases[] = {
      {"v3-fp8", scale_inv.c_str(), 4, word(0x7fc00000), "a NaN or an infinity at [0, 1]"},
      {"v3-fp8", scale_inv.c_str(), 4, word(0xbf800000),
       "a scale that is not above zero at [0, 1]"},
      {"v3-fp8", scale_inv.c_str(), 4, word(0), "a scale that is not above zero at [0, 1]"},
      {"v3-fp8", scale_inv.c_str(), 4, word(0x80000000),
       "a scale that is not above zero at [0, 1]"},
      {"v3-fp8", scale_inv.c_str(), 4, word(0x71800000), "a scale of 2^100 or more at [0, 1]"},
      {"v3-int4", packed.c_str(), 2, "\x80\x71", "a scale of 2^100 or more at [0, 1]"},
      {"v3-fp8", fp8.c_str(), 300, "\x7f", "a NaN or an infinity at [1, 44]"},
      {"v3-fp8", fp8.c_str(), 300, "\xff", "a NaN or an infinity at [1, 44]"},
      {"v3-fp8", fp8.c_str(), 300, "\x7e", nullptr},
      {"v3-int4", packed.c_str(), 2, "\x80\xff", "a NaN or an infinity at [0, 1]"},
      {"v3-int4", packed.c_str(), 2, "\x80\xbf", "a scale that is not above zero at [0, 1]"},
      {"v3-int4", shape.c_str(), 0, word(65), "another shape than [64, 128]"},
      {"v3-awq", awq.c_str(), 2, std::string("\x00\x7c", 2), "a NaN or an infinity at [0, 1]"},
      {"v3-awq", awq.c_str(), 2, std::string("\x01\x80", 2),
       "a scale that is not above zero at [0, 1]"},
      {"gpt-oss", mx.c_str(), 5 * 192 * 5 + 6, "\xff", "no number at [1, 1]"},
      {"gpt-oss", mx.c_str(), 5 * 192 * 5 + 6, "\xe3", "a scale of 2^100 or more at [1, 1]"},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.tensor));
    CAPTURE(c.at);
    const ModelFolder folder(folder_of(c.golden));
    const std::uint64_t place = folder.begin(c.tensor) + c.at;
    folder.overwrite(place, c.bytes);
    const auto checkpoint = must(Checkpoint::open(folder.string()));
    const auto loaded = load_expert(*checkpoint, Numerics::kBf16, 1, 5);
    CHECK(load_expert(*checkpoint, Numerics::kBf16, 1, 6).ok());
    CHECK(loaded.ok() == (c.said == nullptr));
    if (loaded.ok() || !c.said) continue;
    CAPTURE(loaded.error().message);
    CHECK(loaded.error().code == ErrorCode::kCorrupt);
    CHECK(loaded.error().message.find(c.tensor) != std::string::npos);
    CHECK(loaded.error().message.find(c.said) != std::string::npos);
    CHECK(loaded.error().message.find("byte " + std::to_string(place)) != std::string::npos);
  }
}

TEST_CASE("the proof of one expert of many in a tensor") {
  const ModelFolder folder(folder_of("gpt-oss"));
  const std::string name = "model.layers.1.mlp.experts.down_proj_blocks";
  const auto proofs = [&] {
    const std::vector<std::string> names = {name + "[3]", name + "[4]"};
    return must(proofs_of(*must(Checkpoint::open(folder.string())), names));
  };
  const auto before = proofs();
  folder.overwrite(folder.begin(name) + folder.bytes(name) / 10 * 4, "\x5a\x3c\x77");
  const auto after = proofs();
  CHECK(before[0] == after[0]);
  CHECK(before[1].stored != after[1].stored);
  const auto checkpoint = must(Checkpoint::open(folder.string()));
  for (const char* wrong : {"[10]", "[-1]", "[x]", "[3", "[]"})
    CHECK_FALSE(checkpoint->find(name + wrong).ok());
  CHECK_FALSE(checkpoint->find("model.norm.weight[0]").ok());
}

TEST_CASE("a load that nobody wants ends") {
  for (const char* golden : {"v3-awq", "gpt-oss", "v3-fp8"}) {
    const auto checkpoint = must(Checkpoint::open(folder_of(golden)));
    int asked = 0;
    const auto loaded =
        load_expert(*checkpoint, Numerics::kBf16, 1, 2,
                    {.goes_on = [&] { return ++asked < 4; }});
    REQUIRE_FALSE(loaded.ok());
    CHECK(loaded.error().code == ErrorCode::kCancelled);
  }
}

}  // namespace
}  // namespace troupe
