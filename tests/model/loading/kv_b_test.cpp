// kv_b_proj, which is taken apart by head and half turned: its halves keep their codes, and mean
// the numbers of the file.

#include <doctest/doctest.h>

#include <fstream>

#include "kernels/linear.h"
#include "model/random/random_checkpoint.h"
#include "model/spec/held_forms.h"
#include "model/weights.h"
#include "runtime/float_mode.h"
#include "tests/model/model_folder.h"
#include "tests/model/must.h"
#include "tests/source_path.h"

namespace troupe {
namespace {

using testing::must;
using testing::TemporaryFolder;

/// What every head of a weight gives for the unit vectors: [k, heads, n].
std::vector<float> all_of(const kernels::Weight& w) {
  set_float_mode();
  kernels::Stream stream({.numerics = Numerics::kReference, .family = CpuFamily::kBaseline});
  kernels::Stream::Scope scope(stream);
  const auto x = stream.alloc_heads(w.k(), w.groups(), w.k());
  for (std::int64_t i = 0; i < w.k() * w.groups() * w.k(); ++i)
    static_cast<float*>(x.data)[i] = i / (w.groups() * w.k()) == i % w.k() ? 1.0f : 0.0f;
  const auto y = stream.alloc_heads(w.k(), w.groups(), w.n());
  kernels::linear(stream, w, kernels::prepare(stream, x, w), y);
  const auto* from = static_cast<const float*>(y.data);
  return {from, from + w.k() * w.groups() * w.n()};
}

std::string written(const TemporaryFolder& folder, RandomFormat format) {
  const auto shape = testing::source_path("configs/bench/v3-shaped.json");
  auto config = nlohmann::json::parse(testing::read_file(shape));
  config.update({{"num_hidden_layers", 1}, {"vocab_size", 64}, {"num_attention_heads", 3},
                 {"num_key_value_heads", 3}, {"kv_lora_rank", 256}, {"intermediate_size", 256}});
  std::ofstream(folder / "config.json") << config;
  RandomCheckpointOptions options{(folder / "config.json").string(), (folder / "model").string(),
                                  format};
  must(write_random_checkpoint(options));
  return options.folder;
}

/// kv_b of the first layer, as numbers: [heads * (nope + v), kv_lora].
std::vector<float> numbers_of(const Checkpoint& checkpoint, const WeightSpec& kv_b) {
  const auto read = [&](const std::string& name) {
    const StoredTensor tensor = must(checkpoint.find(name));
    std::vector<std::byte> bytes(tensor.bytes);
    REQUIRE(checkpoint.read(tensor, 0, bytes).ok());
    return bytes;
  };
  kernels::StoredMatrix stored = stored_matrix(kv_b);
  std::vector<std::byte> codes, scales;
  for (const StoredPart& part : stored_parts(kv_b)) {
    if (part.kind == PartKind::kCodes) codes = read(part.name);
    if (part.kind == PartKind::kScales) scales = read(part.name);
  }
  stored.scales.data = scales.data();
  std::vector<float> numbers(static_cast<std::size_t>(stored.n * stored.k));
  kernels::decode_rows(Numerics::kReference, stored, codes.data(), 0, stored.n, numbers.data());
  return numbers;
}

TEST_CASE("the halves of a quantised kv_b keep their width and are the numbers of the file") {
  for (const RandomFormat format : {RandomFormat::kFp8, RandomFormat::kInt4}) {
    const TemporaryFolder folder;
    const auto checkpoint = must(Checkpoint::open(written(folder, format)));
    const LayerSpec& layer = checkpoint->spec().layers[0];
    const auto& kv_b = *std::ranges::find(layer.weights, WeightRole::kKvB, &WeightSpec::role);
    const AttentionSpec& a = layer.attention;
    const std::vector<float> numbers = numbers_of(*checkpoint, kv_b);
    const double bits = format == RandomFormat::kFp8 ? 8 : 4;
    const double bytes = static_cast<double>(numbers.size()) * bits / 8;
    CHECK(static_cast<double>(held_bytes(kv_b, a, Numerics::kBf16)) < 1.15 * bytes);

    const auto shard = must(load_shard(*checkpoint, Numerics::kReference, 0, 0));
    const auto uk = all_of(shard->layers[0].at(WeightRole::kUk));  // [nope, heads, kv_lora]
    const auto uv = all_of(shard->layers[0].at(WeightRole::kUv));  // [kv_lora, heads, v]
    std::size_t wrong = 0;
    for (std::int64_t h = 0; h < a.heads; ++h)
      for (std::int64_t i = 0; i < a.nope + a.v_head; ++i)
        for (std::int64_t c = 0; c < a.kv_lora; ++c) {
          const std::int64_t v = i - a.nope;
          const float held = i < a.nope ? uk[(i * a.heads + h) * a.kv_lora + c]
                                        : uv[(c * a.heads + h) * a.v_head + v];
          wrong += held != numbers[((h * (a.nope + a.v_head)) + i) * a.kv_lora + c];
        }
    CHECK(wrong == 0);
  }
}

}  // namespace
}  // namespace troupe
