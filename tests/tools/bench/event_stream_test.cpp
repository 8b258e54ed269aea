#include "tools/troupe/bench/event_stream.h"

#include <doctest/doctest.h>

#include <string>

#include "tools/troupe/bench/limits.h"

namespace troupe::bench {
namespace {

TEST_CASE("events are the same in whatever pieces they come") {
  const std::string text =
      ": ping\n\ndata: one\n\nevent: x\ndata:two\r\n\r\ndata: th\rdata: ree\r\rdatax: no\ndata\n\n"
      "data: lost";
  for (std::size_t piece = 1; piece <= text.size(); ++piece) {
    std::string found;
    EventStream events([&](std::string_view data) {
      found += "[" + std::string(data) + "]";
      return Status();
    });
    for (std::size_t at = 0; at < text.size(); at += piece)
      CHECK(events.feed(std::string_view(text).substr(at, piece)).ok());
    CHECK(found == "[one][two][th\nree][]");
  }
  EventStream endless([](std::string_view) { return Status(); });
  Status status;
  for (std::size_t i = 0; status.ok() && i < 2 * kEventBytesMax; i += 4096)
    status = endless.feed("data: " + std::string(4090, 'x') + "\n");
  REQUIRE(!status.ok());
  CHECK(status.error().code == ErrorCode::kResourceExhausted);
}

}  // namespace
}  // namespace troupe::bench
