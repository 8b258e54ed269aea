// Whole models by the CUDA back-end's kernels, as the host's twin runs them.

#include "kernels/cuda/twin/backend.h"
#include "tests/model/golden.h"
#include "tests/model/hidden_of.h"
#include "tests/source_path.h"
#include "tests/tier.h"

namespace troupe::testing {
namespace {

std::vector<Request> two_requests(std::int32_t vocab) {
  std::vector<Request> requests(2);
  for (std::size_t i = 0; i < requests.size(); ++i) {
    for (std::int32_t t = 0; t < (i == 0 ? 21 : 5); ++t)
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
  std::vector<const char*> folders = {"tests/golden/v3", "tests/golden/gpt-oss"};
  if (long_tier()) folders.assign(std::begin(kGoldenModels), std::end(kGoldenModels));
  for (const char* folder : folders) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    for (const Numerics numerics : {Numerics::kBf16, Numerics::kBf16KvFp8}) {
      if (numerics == Numerics::kBf16KvFp8 && !long_tier()) continue;
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
    if (!long_tier() && folder == std::string_view("tests/golden/v3")) continue;
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    for (const std::uint32_t ranks : {1, 2, 4}) {
      if (!long_tier() && ranks != 2) continue;
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
      const auto prompt = some_prompt(checkpoint->spec().vocab, 70);
      CHECK(hidden_of(by_twin, prompt, 66) == hidden_of(by_cpu, prompt, 16));
    }
  }
}

TEST_CASE("ranks read each other's numbers in the memory of the devices, with the same bits") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  using Known = Spread::Known;
  const struct {
    const char* folder;
    std::uint32_t ranks, devices;
    Known known;
    bool stay;
  } cases[] = {
      {"tests/golden/v3", 4, 2, Known::kWrong, true},
      {"tests/golden/gpt-oss", 2, 2, Known::kAll, false},
      {"tests/golden/gpt-oss", 2, 2, Known::kAll, true},
      {"tests/golden/gpt-oss", 2, 1, Known::kNothing, true},
  };
  std::uint64_t seed = 40, read_before = 0;
  for (const auto& of : cases) {
    CAPTURE(std::string(of.folder));
    CAPTURE(of.ranks);
    CAPTURE(of.devices);
    const auto checkpoint = must(Checkpoint::open(source_path(of.folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    Spread spread;
    spread.numerics = Numerics::kBf16;
    spread.threads = 2;
    LocalModel by_cpu(checkpoint, spread);
    spread.backend = twin;
    spread.device_memory = 256u << 20;
    spread.expert_groups = 2;
    spread.ranks = of.ranks;
    spread.devices = of.devices;
    spread.known = of.known;
    spread.stay = of.stay;
    spread.seed = ++seed;
    LocalModel by_twin(checkpoint, spread);
    CHECK(generate(by_twin, requests, 16) == generate(by_cpu, requests, 16));
    CHECK(by_twin.digests() == by_cpu.digests());
    if (of.known == Known::kAll && of.stay) CHECK(by_twin.device()->bytes_read() < read_before);
    read_before = by_twin.device()->bytes_read();
  }
}

TEST_CASE("a device that may keep next to nothing on the host answers with the same bits") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  std::uint64_t seed = 70;
  for (const char* folder : {"tests/golden/v3", "tests/golden/gpt-oss"}) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    CAPTURE(std::string(folder));
    Spread spread;
    spread.numerics = Numerics::kBf16;
    spread.threads = 2;
    LocalModel by_cpu(checkpoint, spread);
    const auto answers = generate(by_cpu, requests, 16);
    spread.backend = twin;
    spread.device_memory = 256u << 20;
    for (const std::size_t bytes : {1, 4096}) {
      if (bytes > 1 && !long_tier()) continue;
      CAPTURE(bytes);
      spread.seed = ++seed;
      spread.staging_bytes = bytes;
      LocalModel by_twin(checkpoint, spread);
      CHECK(generate(by_twin, requests, 16) == answers);
      CHECK(by_twin.digests() == by_cpu.digests());
    }
  }
}

TEST_CASE("a device that has all experts computes a step without telling the host what it chose") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  std::uint64_t seed = 90;
  for (const char* folder : {"tests/golden/v3", "tests/golden/qwen3-moe", "tests/golden/gpt-oss"}) {
    if (!long_tier() && folder == std::string_view("tests/golden/qwen3-moe")) continue;
    CAPTURE(std::string(folder));
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = two_requests(checkpoint->spec().vocab);
    Spread spread;
    spread.numerics = Numerics::kBf16;
    spread.threads = 2;
    LocalModel by_cpu(checkpoint, spread);
    spread.backend = twin;
    spread.device_memory = 256u << 20;
    spread.seed = ++seed;
    LocalModel by_twin(checkpoint, spread);
    CHECK(generate(by_twin, requests, 16) == generate(by_cpu, requests, 16));
    CHECK(by_twin.digests() == by_cpu.digests());
    CHECK(by_twin.experts_read() == by_cpu.experts_read());
    CHECK(!by_twin.routed().empty());
    CHECK(by_twin.routed() == by_cpu.routed());
    // A token more. What the host waits for: rows that are no numbers, what was chosen, logits; and
    // the hidden rows, twice, for this test.
    StepPlanBody plan;
    StepSequence& sequence = plan.sequences.emplace_back();
    sequence.tokens = {7};
    sequence.block_table = {0};
    sequence.sample = true;
    const std::uint64_t before = by_twin.device()->waits();
    by_twin.step(plan);
    CHECK(by_twin.device()->waits() - before == 5);
    // And more of them: a graph between two waits, in which nothing differs from the step before.
    for (int position = 0; position < 8; ++position) {
      const kernels::GraphQueue::Counts counts = by_twin.device()->counts();
      sequence.first_position = position;
      by_twin.step(plan);
      const kernels::GraphQueue::Counts& now = by_twin.device()->counts();
      CHECK(now.kernels - counts.kernels > 50);
      CHECK(now.launches - counts.launches <= 5);
      CHECK(now.captures == counts.captures);
      CHECK(now.changes == counts.changes);
    }
    // Many rows are given to it a layer at a time: a device that works long shows that it does.
    sequence.first_position = 0;
    sequence.tokens.assign(32, 7);
    sequence.block_table.clear();
    for (int block = 0; block * by_twin.block_size() < 32; ++block)
      sequence.block_table.push_back(block);
    const std::uint64_t given = by_twin.device()->counts().launches;
    by_twin.step(plan);
    by_twin.step(plan);
    const std::uint64_t known = by_twin.device()->counts().launches;
    by_twin.step(plan);
    CHECK(known > given);
    CHECK(by_twin.device()->counts().launches - known >=
          static_cast<std::uint64_t>(checkpoint->spec().num_layers()));
  }
}

TEST_CASE("of a row of logits the host reads what was asked, and no more") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  auto requests = two_requests(checkpoint->spec().vocab);
  requests.resize(1);
  requests[0].new_tokens = 1;
  Spread spread;
  spread.numerics = Numerics::kBf16;
  spread.backend = twin;
  spread.device_memory = 256u << 20;
  LocalModel model(checkpoint, spread);
  const auto bytes_of = [&](bool prompt_logprobs, std::int32_t top) {
    requests[0].prompt_logprobs = prompt_logprobs;
    requests[0].sampling.top_logprobs = top;
    const std::uint64_t before = model.device()->bytes_read();
    generate(model, requests, 64);
    return model.device()->bytes_read() - before;
  };
  const std::uint64_t rows = requests[0].prompt.size() - 1;  // of the prompt, and one that is drawn
  const std::uint64_t one = bytes_of(false, 0);
  CHECK(bytes_of(true, 0) - one == rows * sizeof(kernels::SampleResult));
  CHECK(bytes_of(false, 5) - one == 5 * sizeof(TokenLogprob));
  CHECK(bytes_of(true, 5) - bytes_of(true, 0) == (rows + 1) * 5 * sizeof(TokenLogprob));
}

/// Greedy tokens of short prompts.
std::vector<Request> short_requests(std::int32_t vocab) {
  auto requests = two_requests(vocab);
  requests[0].prompt.resize(14);
  for (Request& r : requests) r.sampling.temperature = 0;
  return requests;
}

TEST_CASE("by tensor cores a model's tokens are bf16's, nearly always") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  std::size_t same = 0, all = 0;
  for (const char* folder : kGoldenModels) {
    CAPTURE(std::string(folder));
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto requests = short_requests(checkpoint->spec().vocab);
    Spread spread;
    spread.numerics = Numerics::kBf16;
    LocalModel by_bf16(checkpoint, spread);
    spread.numerics = Numerics::kCudaMma;
    spread.backend = twin;
    LocalModel by_mma(checkpoint, spread);
    const auto one = generate(by_mma, requests, 16), other = generate(by_bf16, requests, 16);
    CHECK(one != other);  // in log-probabilities
    for (std::size_t i = 0; i < one.size(); ++i)
      for (std::size_t t = 0; t < one[i].tokens.size(); ++t, ++all) {
        if (one[i].tokens[t].token != other[i].tokens[t].token) break;
        ++same;
      }
  }
  MESSAGE(same << " of " << all << " greedy tokens up to the first that differs");
  CHECK(same * 10 >= all * 9);
}

TEST_CASE("by tensor cores a model is as near the golden answers as bf16 must be") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  for (const char* folder : {"tests/golden/v3-fp8", "tests/golden/gpt-oss"}) {
    CAPTURE(std::string(folder));
    const auto golden = golden_of(folder);
    Spread spread;
    spread.numerics = Numerics::kCudaMma;
    spread.backend = twin;
    LocalModel model(must(Checkpoint::open(source_path(folder))), spread);
    CHECK(near_enough(compare(model, golden, 0.5, true), golden));
  }
}

TEST_CASE("by tensor cores ranks, chunks and batches change no bit") {
  const kernels::Backend* twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3-fp8")));
  const auto requests = short_requests(checkpoint->spec().vocab);
  for (const Numerics numerics : {Numerics::kCudaMma, Numerics::kCudaMmaKvFp8}) {
    if (numerics == Numerics::kCudaMmaKvFp8 && !long_tier()) continue;
    CAPTURE(to_string(numerics));
    Spread spread;
    spread.numerics = numerics;
    spread.backend = twin;
    LocalModel whole(checkpoint, spread);
    const auto answers = generate(whole, requests, 16);
    CHECK(generate(whole, requests, 5) == answers);
    CHECK(generate(whole, {requests[1]}, 16)[0] == answers[1]);
    spread.ranks = numerics == Numerics::kCudaMma ? 4 : 2;
    LocalModel parts(checkpoint, spread);
    CHECK(generate(parts, requests, 16) == answers);
  }
}

}  // namespace
}  // namespace troupe::testing
