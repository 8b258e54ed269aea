// The forward pass against stored answers of Hugging Face transformers.

#include "tests/model/golden.h"
#include "tests/source_path.h"

namespace troupe::testing {
namespace {

TEST_CASE("golden answers") {
  for (const char* folder : kGoldenModels) {
    const auto checkpoint = must(Checkpoint::open(source_path(folder)));
    const auto golden = golden_of(folder);
    for (const Numerics numerics : {Numerics::kReference, Numerics::kBf16}) {
      Spread spread;
      spread.numerics = numerics;
      spread.threads = 2;
      LocalModel model(checkpoint, spread);
      const bool exact = numerics == Numerics::kReference;
      const auto compared = compare(model, golden, exact ? 0.02 : 0.5, !exact);
      const auto& errors = compared.errors;
      INFO(std::string(folder) << " " << to_string(numerics) << ": median "
                               << errors[errors.size() / 2] << ", 95th percentile "
                               << errors[errors.size() * 95 / 100] << ", worst " << errors.back());
      CHECK(compared.greedy_wrong == 0);
      if (exact) {
        CHECK(errors.back() < 0.01);
      } else {
        CHECK(near_enough(compared, golden));
      }
    }
  }
}

}  // namespace
}  // namespace troupe::testing
