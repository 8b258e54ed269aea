// No token changes: how a request is cut, batched and placed changes no bit of its answer.

#include <random>

#include "tests/model/local_model.h"
#include "tests/source_path.h"
#include "tests/tier.h"

namespace troupe::testing {
namespace {

std::vector<TokenId> random_prompt(std::mt19937& random, std::int32_t vocab, std::size_t length) {
  std::vector<TokenId> prompt;
  for (std::size_t i = 0; i < length; ++i)
    prompt.push_back(static_cast<TokenId>(random() % static_cast<std::uint32_t>(vocab)));
  return prompt;
}

/// Greedy and sampled requests, with and without penalties.
std::vector<Request> some_requests(std::int32_t vocab) {
  std::mt19937 random(20240607);
  std::vector<Request> requests;
  const std::size_t lengths[] = {1, 5, 17, 40, 90};
  for (std::size_t i = 0; i < std::size(lengths); ++i) {
    Request request;
    request.prompt = random_prompt(random, vocab, lengths[i]);
    request.new_tokens = 6;
    request.sampling.temperature = i % 2 ? 1.0f : 0.0f;
    request.sampling.seed = 1000 + i;
    request.sampling.top_logprobs = 3;
    if (i == 3) {
      request.sampling.repetition_penalty = 1.3f;
      request.sampling.frequency_penalty = 0.5f;
      request.sampling.top_p = 0.9f;
    }
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Answer> answers_with(const std::shared_ptr<const Checkpoint>& checkpoint,
                                 const Spread& spread, std::int32_t chunk) {
  LocalModel model(checkpoint, spread);
  return generate(model, some_requests(checkpoint->spec().vocab), chunk);
}

TEST_CASE("answers depend on no chunk, block, batch, shard, group, thread or instruction") {
  std::vector<const char*> folders = {"tests/golden/v3-fp8", "tests/golden/gpt-oss",
                                      "tests/golden/qwen2"};
  if (long_tier())
    folders.insert(folders.end(), {"tests/golden/v3", "tests/golden/v2-lite",
                                   "tests/golden/glm4-moe", "tools/demo/pocket-dictionary"});
  for (const char* folder : folders) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    for (const Numerics numerics : numerics_of(supported_cpu_families().back())) {
      CAPTURE(std::string(folder));
      CAPTURE(to_string(numerics));
      Spread plain;
      plain.numerics = numerics;
      const auto expected = answers_with(checkpoint, plain, 2048);
      REQUIRE(expected[4].tokens.size() == 6);
      REQUIRE(expected[4].prompt[89].has_value());
      REQUIRE(expected[4].prompt[89]->top.size() == 3);

      for (const std::int32_t chunk : {1, 3, 16}) {
        CAPTURE(chunk);
        CHECK(answers_with(checkpoint, plain, chunk) == expected);
      }
      auto changed = [&](auto change) {
        Spread spread = plain;
        change(spread);
        return answers_with(checkpoint, spread, 16);
      };
      for (const CpuFamily family : supported_cpu_families()) {
        if (family == CpuFamily::kBaseline && numerics != Numerics::kReference) continue;
        CAPTURE(to_string(family));
        CHECK(changed([&](Spread& s) { s.family = family; }) == expected);
      }
      CHECK(changed([](Spread& s) { s.block_size = 4; }) == expected);
      CHECK(changed([](Spread& s) { s.threads = 3; }) == expected);
      CHECK(changed([](Spread& s) { s.cuts = {1}; }) == expected);
      CHECK(changed([](Spread& s) { s.cuts = {1, 2}; }) == expected);
      CHECK(changed([](Spread& s) { s.expert_groups = 3; }) == expected);
      CHECK(changed([](Spread& s) {
              s.cuts = {2};
              s.expert_groups = 2;
              s.block_size = 4;
              s.threads = 2;
            }) == expected);

      LocalModel model(checkpoint, plain);
      const auto requests = some_requests(checkpoint->spec().vocab);
      for (std::size_t i = 0; i < requests.size(); ++i)
        CHECK(generate(model, {requests[i]}, 2048)[0] == expected[i]);
    }
  }
}

TEST_CASE("a request resumed from its tokens so far goes on exactly") {
  const auto checkpoint = must(Checkpoint::open(source_path("tests/golden/v3")));
  for (const Numerics numerics : numerics_of(supported_cpu_families().back())) {
    Spread spread;
    spread.numerics = numerics;
    LocalModel model(checkpoint, spread);
    for (const auto& request : some_requests(checkpoint->spec().vocab)) {
      const auto whole = generate(model, {request}, 2048)[0];
      // A replay computes prompt and generated tokens again; the prompt's length stays what it was.
      StepSequence s;
      s.tokens = request.prompt;
      for (int i = 0; i < 3; ++i)
        s.tokens.push_back(whole.tokens[static_cast<std::size_t>(i)].token);
      s.prompt_length = static_cast<std::int32_t>(request.prompt.size());
      s.sampling = request.sampling;
      s.sample = true;
      for (std::int32_t b = 0; b < 8; ++b) s.block_table.push_back(b);
      const auto results = model.step({StepId{1}, {s}});
      REQUIRE(results[0].sampled.has_value());
      CHECK(*results[0].sampled == whole.tokens[3]);
    }
  }
}

}  // namespace
}  // namespace troupe::testing
