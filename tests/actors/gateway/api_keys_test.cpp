#include "actors/gateway/api_keys.h"

#include <doctest/doctest.h>

#include <string>
#include <vector>

namespace troupe {
namespace {

struct GoodKey {
  std::string spec, key;
  float weight;
  std::uint32_t running_max;
};
const GoodKey kGoodKeys[] = {
    {"secret", "secret", 1, 0},
    {"secret:weight=3", "secret", 3, 0},
    {"secret:max-running=64", "secret", 1, 64},
    {"secret:weight=0.5,max-running=2", "secret", 0.5f, 2},
    {"secret:max-running=2,weight=0.5", "secret", 0.5f, 2},
    {"secret:weight=2,weight=3", "secret", 3, 0},
    {"sk:live:abc", "sk:live:abc", 1, 0},
    {"sk:live:abc:weight=100", "sk:live:abc", 100, 0},
    {"trailing:", "trailing:", 1, 0},
    {"YWJj==", "YWJj==", 1, 0},  // base64's end, without a colon before it
    {"YWJj==:weight=2", "YWJj==", 2, 0},
    {"a,b", "a,b", 1, 0},
};

TEST_CASE("a key says what it may have") {
  for (const auto& [spec, key, weight, running_max] : kGoodKeys) {
    CAPTURE(spec);
    REQUIRE(ApiKeys::check({spec}).ok());
    CHECK(ApiKeys::key_of(spec) == key);
    const ApiKeys keys({spec});
    CHECK(keys.admit("Bearer " + key));
    CHECK(!keys.admit("Bearer " + key + "x"));
    CHECK((spec == key || !keys.admit("Bearer " + spec)));
    REQUIRE(keys.shares().size() == 1);
    const KeyShare share = keys.shares()[0];
    CHECK(share == KeyShare{keys.owner("Bearer " + key), weight, running_max});
    CHECK(share.owner != 0);
  }
}

const std::string kBadKeys[] = {
    "",
    ":weight=2",
    "secret:weight=",
    "secret:weight=0",
    "secret:weight=-1",
    "secret:weight=101",
    "secret:weight=nan",
    "secret:weight=inf",
    "secret:weight=1e",
    "secret:weight= 2",
    "secret:weight=2,",
    "secret:weight=2;max-running=1",
    "secret:weight=2,,max-running=1",
    "secret:max-running=0",
    "secret:max-running=-1",
    "secret:max-running=1.5",
    "secret:max-running=4294967296",
    "secret:max_running=1",
    "secret:wieght=2",
    "secret:YWJj==",
    " ",
    " secret",
    "secret :weight=2",
    "secret\n",
    "sec\tret",
};

TEST_CASE("what stands behind a key and is no share is refused, and the key not repeated") {
  for (const std::string& spec : kBadKeys) {
    CAPTURE(spec);
    const Status checked = ApiKeys::check({"other", spec});
    REQUIRE(!checked.ok());
    CHECK(checked.error().code == ErrorCode::kInvalidArgument);
    CHECK(checked.error().message.find("--api-key") == 0);
    CHECK(checked.error().message.find("secret") == std::string::npos);
  }
}

TEST_CASE("a key counts once, and has one share") {
  const std::vector<std::string> same{"secret", "other:weight=2", "secret"};
  REQUIRE(ApiKeys::check(same).ok());
  CHECK(ApiKeys(same).shares().size() == 2);
  CHECK(!ApiKeys::check({"secret", "secret:weight=2"}).ok());
}

}  // namespace
}  // namespace troupe
