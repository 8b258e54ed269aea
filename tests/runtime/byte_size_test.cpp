#include "runtime/byte_size.h"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("amounts of memory are read as people write them") {
  CHECK(parse_byte_size("0").value() == 0);
  CHECK(parse_byte_size("65536").value() == 65536);
  CHECK(parse_byte_size("4096B").value() == 4096);
  CHECK(parse_byte_size("512MiB").value() == 512ull << 20);
  CHECK(parse_byte_size("1.5GiB").value() == 1536ull << 20);
  CHECK(parse_byte_size("2GB").value() == 2'000'000'000ull);
}

TEST_CASE("what is no amount of memory is refused with advice") {
  for (const char* text : {"", "MiB", "-1", "1 GiB", "1gib", "nan", "1e30TiB", "99999999TiB"}) {
    const auto parsed = parse_byte_size(text);
    REQUIRE_MESSAGE(!parsed.ok(), text);
    CHECK(parsed.error().message.find("512MiB") != std::string::npos);
  }
}

TEST_CASE("a bare number that no device has bytes of lacks its unit") {
  struct Case {
    const char* text;
    const char* meant;
  };
  for (const Case& c :
       {Case{"80", "write 80GiB."}, Case{"1", "write 1GiB."}, Case{"1.5", "write 1.5GiB."},
        Case{"24564", "write 24564MiB."}, Case{"65535", "write 65535MiB."}}) {
    const auto parsed = parse_byte_size(c.text);
    REQUIRE_MESSAGE(!parsed.ok(), c.text);
    CHECK(parsed.error().message.find(c.meant) != std::string::npos);
  }
}

TEST_CASE("amounts of memory are shown with one decimal") {
  CHECK(format_byte_size(5) == "5 bytes");
  CHECK(format_byte_size(1536ull << 20) == "1.5 GiB");
}
