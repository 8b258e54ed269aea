#include "actors/router/stop_matcher.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <memory>
#include <random>
#include <string>
#include <string_view>
#include <vector>

using namespace troupe;

namespace {

StopMatcher matcher(std::vector<std::string> stops) {
  return StopMatcher(std::make_shared<const StopStrings>(std::move(stops)));
}

/// The same by definition: the text before the first place where a stop string ends; of several
/// that end there, before the longest.
std::string cut(const std::string& text, const std::vector<std::string>& stops) {
  for (std::size_t end = 1; end <= text.size(); ++end) {
    std::size_t longest = 0;
    for (const std::string& stop : stops)
      if (std::string_view(text).substr(0, end).ends_with(stop))
        longest = std::max(longest, stop.size());
    if (longest > 0) return text.substr(0, end - longest);
  }
  return text;
}

}  // namespace

TEST_CASE("text that may become a stop string is held back") {
  StopMatcher m = matcher({"END", "\n\n"});
  CHECK(m.feed("one E") == "one ");
  CHECK(m.feed("N") == "");
  CHECK(m.feed("T\n") == "ENT");
  CHECK(m.feed("x") == "\nx");
  CHECK(m.feed("EN") == "");
  CHECK(m.feed("D more") == "");
  CHECK(m.matched());
  CHECK(m.feed("more") == "");
}

TEST_CASE("what was held back comes out at the end") {
  StopMatcher m = matcher({"END"});
  CHECK(m.feed("the EN") == "the ");
  CHECK(m.finish() == "EN");
  CHECK(!m.matched());
}

TEST_CASE("a stop string that overlaps itself or another is found") {
  StopMatcher m = matcher({"aab", "abcd"});
  CHECK(m.feed("aaa") == "a");
  CHECK(m.feed("b") == "");
  CHECK(m.matched());
  StopMatcher n = matcher({"bc", "abcd"});
  CHECK(n.feed("xabcd") == "xa");
  CHECK(n.matched());
}

TEST_CASE("a stop string that is shown is let through, and nothing is held back for it") {
  StopMatcher m(std::make_shared<const StopStrings>(std::vector<std::string>{"END"}, true));
  CHECK(m.feed("one E") == "one E");
  CHECK(m.feed("ND more") == "ND");
  CHECK(m.matched());
  CHECK(m.feed("more") == "");
  CHECK(m.finish() == "");
}

TEST_CASE("without stop strings everything passes") {
  StopMatcher m = matcher({});
  CHECK(m.feed("anything") == "anything");
}

TEST_CASE("how the text is cut into pieces changes nothing") {
  std::mt19937 random(5);
  const auto word = [&](std::size_t length) {
    std::string text;
    while (text.size() < length) text.push_back(static_cast<char>('a' + random() % 2));
    return text;
  };
  int matches = 0;
  for (int round = 0; round < 20000; ++round) {
    std::vector<std::string> stops;
    for (auto i = random() % 4; i > 0; --i) stops.push_back(word(1 + random() % 6));
    const std::string text = word(random() % 24);
    const std::string wanted = cut(text, stops);
    StopMatcher m = matcher(stops);
    std::string out;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t length = 1 + random() % 5;
      out += m.feed(std::string_view(text).substr(at, length));
      at += length;
      CHECK(wanted.starts_with(out));
    }
    CHECK(m.matched() == (wanted.size() < text.size()));
    matches += m.matched();
    out += m.finish();
    CHECK(out == wanted);
  }
  CHECK(matches > 1000);
}
