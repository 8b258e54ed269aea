/// Tensor-parallel ranks have the bits of one device, whatever a model's sizes divide by.
#include <filesystem>

#include "tests/model/local_model.h"
#include "tests/source_path.h"
#include "tests/tier.h"

namespace troupe::testing {
namespace {

std::vector<Request> requests_of(std::int32_t vocab) {
  std::vector<Request> requests;
  for (unsigned i = 0; i < 3; ++i) {
    Request request;
    for (unsigned t = 0; t < 5 + 60 * i; ++t)
      request.prompt.push_back(
          static_cast<TokenId>((t * 31 + i * 17 + 7) % static_cast<unsigned>(vocab)));
    request.new_tokens = 4;
    request.sampling.temperature = i == 1 ? 1.0f : 0.0f;
    request.sampling.seed = 4711 + i;
    request.sampling.top_logprobs = 2;
    requests.push_back(std::move(request));
  }
  return requests;
}

std::vector<Answer> answers(const std::shared_ptr<const Checkpoint>& checkpoint,
                            const Spread& spread, std::int32_t chunk) {
  LocalModel model(checkpoint, spread);
  return generate(model, requests_of(checkpoint->spec().vocab), chunk);
}

std::vector<std::string> folders() {
  std::vector<std::string> found = {source_path("tools/demo/pocket-dictionary")};
  for (const auto& entry : std::filesystem::directory_iterator(source_path("tests/golden")))
    if (std::filesystem::exists(entry.path() / "config.json")) found.push_back(entry.path());
  std::sort(found.begin(), found.end());
  return found;
}

TEST_CASE("answers depend on no number of tensor-parallel ranks") {
  std::size_t models = 0;
  for (const std::string& folder : folders()) {
    CAPTURE(folder);
    const auto checkpoint = must(Checkpoint::open(folder));
    ++models;
    for (const Numerics numerics : {Numerics::kReference, Numerics::kBf16}) {
      // The plain loops take as long as all others.
      const bool spared = !folder.ends_with("/v3") && !folder.ends_with("/gpt-oss");
      if (numerics == Numerics::kReference && spared && !long_tier()) continue;
      CAPTURE(to_string(numerics));
      Spread spread;
      spread.numerics = numerics;
      if (numerics == Numerics::kReference) spread.family = CpuFamily::kBaseline;
      const auto expected = answers(checkpoint, spread, 2048);
      for (const std::uint32_t ranks : {2u, 4u, 8u}) {
        if (numerics == Numerics::kReference && ranks != 4) continue;
        CAPTURE(ranks);
        spread.ranks = ranks;
        spread.cuts.clear();
        spread.expert_groups = 1;
        spread.known = Spread::Known::kAll;
        CHECK(answers(checkpoint, spread, ranks == 2 ? 16 : 2048) == expected);
        if (ranks != 4) continue;
        spread.cuts = {1};
        spread.expert_groups = 3;
        for (const auto known :
             {Spread::Known::kNothing, Spread::Known::kAll, Spread::Known::kWrong}) {
          if (known == Spread::Known::kAll && !long_tier()) continue;
          spread.known = known;
          CHECK(answers(checkpoint, spread, 3) == expected);
        }
        CHECK(answers(checkpoint, spread, 2048) == expected);
      }
    }
  }
  CHECK(models >= 10);
}

}  // namespace
}  // namespace troupe::testing
