// What may stand behind --nodes.

#include "tools/troupe/plan/nodes.h"

#include <doctest/doctest.h>

#include "tests/model/must.h"

namespace troupe {
namespace {

using testing::must;

TEST_CASE("nodes are read") {
  struct Case {
    const char* text;
    std::vector<NodeGroup> groups;
  };
  const Case cases[] = {
      {"4:64GiB", {{4, 1, 64ull << 30, ""}}},
      {"1:1500MiB", {{1, 1, 1500ull << 20, ""}}},
      {"3:4000001B", {{3, 1, 4000001, ""}}},
      {"3:4000000", {{3, 1, 4000000, ""}}},
      {"2x8:80GB", {{2, 8, 80000000000, ""}}},
      {"2x8:h100-80g", {{2, 8, 81559ull << 20, "h100-80g"}}},
      {"1x4:h200-141g", {{1, 4, 143771ull << 20, "h200-141g"}}},
      {"4:64GiB,2x8:a100-80g", {{4, 1, 64ull << 30, ""}, {2, 8, 81920ull << 20, "a100-80g"}}},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.text));
    CHECK(must(parse_nodes(c.text)) == c.groups);
    CHECK(must(parse_nodes(to_string(c.groups))) == c.groups);
  }
}

TEST_CASE("what is no cluster is refused, and the part is named") {
  struct Case {
    const char* text;
    const char* named;
  };
  const Case cases[] = {
      {"", "COUNT:MEMORY"},
      {"4", "'4'"},
      {"64GiB", "COUNT:MEMORY"},
      {":64GiB", "number of nodes"},
      {"4:", "amount of memory"},
      {"4:64GiB,", "COUNT:MEMORY"},
      {"4:64GiB,,2:1GiB", "COUNT:MEMORY"},
      {"0:64GiB", "1 to 4096 nodes"},
      {"-1:64GiB", "1 to 4096 nodes"},
      {"2x0:64GiB", "1 to 64 devices"},
      {"2x65:64GiB", "1 to 64 devices"},
      {"2x:64GiB", "'2x'"},
      {"x8:64GiB", "'x8'"},
      {"2x8x2:64GiB", "'2x8x2'"},
      {"1.5:64GiB", "'1.5'"},
      {"99999999999999999999:64GiB", "number of nodes"},
      {"5000:64GiB", "not 5000"},
      {"1000x8:64GiB", "4096 devices"},
      {"4:0", "has none"},
      {"4:0GiB", "has none"},
      {"4:-1", "amount of memory"},
      {"4:64Gib", "amount of memory"},
      {"4:h100", "did you mean 'h100-80g'?"},
      {"4:b200", "did you mean 'b200-180g'?"},
      {"2x8:80", "write 80GiB."},
      {"2x8:81559", "no device has 79.6 KiB"},
      {"4:9000TiB", "no device has"},
      {"4:64GiB,2x8:h1-80g", "'2x8:h1-80g'"},
  };
  for (const Case& c : cases) {
    CAPTURE(std::string(c.text));
    const auto groups = parse_nodes(c.text);
    REQUIRE(!groups.ok());
    CHECK(groups.error().code == ErrorCode::kInvalidArgument);
    CAPTURE(groups.error().message);
    CHECK(groups.error().message.starts_with("--nodes"));
    CHECK(groups.error().message.find(c.named) != std::string::npos);
  }
}

TEST_CASE("devices are numbered by their nodes") {
  const auto devices = devices_of(must(parse_nodes("1:1GiB,2x2:h100-80g")));
  REQUIRE(devices.size() == 5);
  CHECK(to_string(devices[0].device) == "node-1/0");
  CHECK(to_string(devices[2].device) == "node-2/1");
  CHECK(to_string(devices[4].device) == "node-3/1");
  CHECK(devices[0].kind == "cpu");
  CHECK(devices[4].kind == "cuda");
  CHECK(devices[4].memory_total == 81559ull << 20);
}

TEST_CASE("sizes are written as flags take them") {
  CHECK(exact_byte_size(64ull << 30) == "64GiB");
  CHECK(exact_byte_size(1500ull << 20) == "1500MiB");
  CHECK(exact_byte_size(1ull << 40) == "1TiB");
  CHECK(exact_byte_size(1234567) == "1234567B");
}

}  // namespace
}  // namespace troupe
