#pragma once

#include <algorithm>
#include <cmath>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/model/local_model.h"
#include "tests/source_path.h"

/// The forward pass beside stored answers of Hugging Face transformers.
namespace troupe::testing {

inline constexpr const char* kGoldenModels[] = {
    "tests/golden/v3",      "tests/golden/v2-lite",           "tests/golden/v3-fp8",
    "tests/golden/v3-awq",  "tests/golden/v3-fp8-ue8m0",      "tests/golden/v3-int4",
    "tests/golden/llama",   "tests/golden/llama-fp8-dynamic", "tests/golden/qwen2",
    "tests/golden/qwen3",   "tests/golden/qwen3-moe",         "tests/golden/glm4-moe",
    "tests/golden/gpt-oss", "tools/demo/pocket-dictionary"};

inline nlohmann::json golden_of(const std::string& folder) {
  std::ifstream in(source_path(folder) + "/golden.json");
  return nlohmann::json::parse(in);
}

struct Compared {
  std::vector<double> errors;  // of prompt log-probabilities, sorted
  int greedy_wrong = 0;        // tokens that differ though the reference was sure
};

/// `sure_nats` is the margin from which a greedy token must be the reference's; once one may differ
/// and does, the texts part. With a bf16 family only the first token counts.
inline Compared compare(LocalModel& model, const nlohmann::json& golden, double sure_nats,
                        bool first_only) {
  std::vector<Request> requests;
  for (const auto& record : golden["prompts"]) {
    Request request;
    request.prompt = record["prompt"].get<std::vector<TokenId>>();
    request.new_tokens = first_only ? 1 : static_cast<int>(record["greedy"].size());
    request.sampling.temperature = 0;
    request.sampling.top_logprobs = 0;
    requests.push_back(std::move(request));
  }
  const auto answers = generate(model, requests, 64);
  Compared compared;
  for (std::size_t i = 0; i < answers.size(); ++i) {
    const auto& record = golden["prompts"][i];
    const auto& expected = record["prompt_logprobs"];
    for (std::size_t p = 1; p < expected.size(); ++p) {
      REQUIRE(answers[i].prompt[p].has_value());
      CHECK(answers[i].prompt[p]->token == requests[i].prompt[p]);
      compared.errors.push_back(
          std::abs(answers[i].prompt[p]->logprob - expected[p].get<double>()));
    }
    for (std::size_t t = 0; t < answers[i].tokens.size(); ++t) {
      if (answers[i].tokens[t].token == record["greedy"][t].get<TokenId>()) continue;
      if (record["margin"][t].get<double>() > sure_nats) ++compared.greedy_wrong;
      break;
    }
  }
  std::sort(compared.errors.begin(), compared.errors.end());
  return compared;
}

/// Whether prompts are as near as the golden answers allow rounded numbers to be.
inline bool near_enough(const Compared& compared, const nlohmann::json& golden) {
  const auto& errors = compared.errors;
  return errors[errors.size() / 2] <= golden["bf16"]["median_max"].get<double>() &&
         errors[errors.size() * 95 / 100] <= golden["bf16"]["p95_max"].get<double>();
}

}  // namespace troupe::testing
