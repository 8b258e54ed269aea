#include "runtime/line_limit.h"

#include <doctest/doctest.h>

using namespace troupe;
using namespace std::chrono_literals;

TEST_CASE("lines that come again and again are written as often as may be, then counted") {
  LineLimit limit;
  TimePoint now{};
  std::size_t written = 0;
  for (int i = 0; i < 10'000; ++i) written += limit.line_of("refused", now).empty() ? 0 : 1;
  CHECK(written == LineLimit::kLinesMax);
  now += 59s;
  CHECK(limit.line_of("refused", now).empty());
  now += 1s;
  CHECK(limit.line_of("refused", now) == "… and 9971 more like this before. refused");
  CHECK(limit.line_of("refused", now) == "refused");
}
