#include "runtime/edit_distance.h"

#include <doctest/doctest.h>

using namespace troupe;

TEST_CASE("edits are counted, and letters that changed places are one") {
  struct Case {
    const char* a;
    const char* b;
    std::size_t edits;
  };
  for (const Case& c :
       {Case{"", "", 0}, Case{"abc", "abc", 0}, Case{"", "abc", 3}, Case{"status", "stauts", 1},
        Case{"model", "models", 1}, Case{"temperatur", "temperature", 1}, Case{"qwen2", "qwen3", 1},
        Case{"mistral", "llama", 6}, Case{"kitten", "sitting", 3}}) {
    CAPTURE(std::string(c.a));
    CAPTURE(std::string(c.b));
    CHECK(edit_distance(c.a, c.b) == c.edits);
    CHECK(edit_distance(c.b, c.a) == c.edits);
  }
}
