// Whole models by the CUDA back-end's kernels, as the host's twin runs them.

#include "kernels/cuda/twin/backend.h"
#include "tests/model/local_model.h"

namespace troupe::testing {
namespace {

std::vector<Request> two_requests(std::int32_t vocab) {
  std::vector<Request> requests(2);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::int32_t t = 0; t < (i == 0 ? 37 : 5); ++t)
      requests[i].prompt.push_back((t * 7919 + 13) % vocab);
    requests[i].new_tokens = 3;
    requests[i].sampling.top_logprobs = 3;
    requests[i].sampling.temperature = i == 0 ? 0.0f : 1.0f;
    requests[i].sampling.seed = 5;
  }
  return requests;
}

TEST_CASE("a model answers with the same bits by the CPU and by the twin of a GPU") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;  // no fma: the CPU computes `reference` only, too
  for (const char* folder :
       {"tests/golden/v3", "tests/golden/v2-lite", "tests/golden/v3-fp8", "tests/golden/v3-awq",
        "tests/golden/v3-fp8-ue8m0", "tests/golden/v3-int4", "tests/golden/llama",
        "tests/golden/llama-fp8-dynamic", "tests/golden/qwen2", "tests/golden/qwen3",
        "tests/golden/qwen3-moe", "tests/golden/glm4-moe", "tests/golden/gpt-oss",
        "tools/demo/pocket-dictionary"}) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    for (const Numerics numerics : {Numerics::kBf16, Numerics::kBf16KvFp8}) {
      CAPTURE(std::string(folder));
      CAPTURE(to_string(numerics));
      Spread spread;
      spread.numerics = numerics;
      spread.threads = 2;
      LocalModel by_cpu(checkpoint, spread);
      spread.backend = twin;
      spread.expert_groups = 2;
      LocalModel by_twin(checkpoint, spread);
      CHECK(generate(by_twin, requests, 16) == generate(by_cpu, requests, 16));
      CHECK(by_twin.digests() == by_cpu.digests());
    }
  }
}

TEST_CASE("a model answers with the same bits by a device whose memory the host cannot touch") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  std::uint64_t seed = 0;
  for (const char* folder : {"tests/golden/v3", "tests/golden/v3-int4", "tests/golden/gpt-oss"}) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    for (const std::uint32_t ranks : {1, 2, 4}) {
      CAPTURE(std::string(folder));
      CAPTURE(ranks);
      Spread spread;
      spread.numerics = Numerics::kBf16;
      spread.threads = 2;
      spread.cuts = {1};
      LocalModel by_cpu(checkpoint, spread);
      spread.backend = twin;
      spread.device_memory = 256u << 20;
      spread.seed = ++seed;
      spread.expert_groups = 2;
      spread.ranks = ranks;
      spread.known = Spread::Known::kAll;
      LocalModel by_twin(checkpoint, spread);
      CHECK(generate(by_twin, requests, 16) == generate(by_cpu, requests, 16));
      CHECK(by_twin.digests() == by_cpu.digests());
    }
  }
}

}  // namespace
}  // namespace troupe::testing
