#include "tools/troupe/console/canvas.h"

#include <doctest/doctest.h>

namespace troupe::console {

TEST_CASE("text is cut off at the edges of its area") {
  Canvas canvas(10, 3);
  const Area middle(canvas, 2, 1, 5, 1);
  CHECK(middle.put(0, 0, "0123456789") == 10);
  CHECK(canvas.row(1) == "  01234");
  middle.put(-2, 0, "abc");
  CHECK(canvas.row(1) == "  c1234");
  middle.put(0, 1, "below");
  middle.put(0, -1, "above");
  CHECK(canvas.row(0).empty());
  CHECK(canvas.row(2).empty());
}

TEST_CASE("fields are filled up or marked as cut") {
  Canvas canvas(30, 1);
  const Area area(canvas);
  int x = area.put_left(0, 0, 6, "ab");
  x = area.put_right(x, 0, 6, "cd");
  x = area.put(x, 0, "|");
  x = area.put_left(x, 0, 4, "abcdef");
  area.put_right(x, 0, 4, "abcdef");
  CHECK(canvas.row(0) == "ab        cd|abc~abc~");
}

TEST_CASE("areas of areas stay inside") {
  Canvas canvas(20, 10);
  const Area area(canvas);
  CHECK(area.rows(8, 9).height() == 2);
  CHECK(area.rows(12, 3).height() == 0);
  CHECK(area.columns(5, 40).width() == 15);
  CHECK(area.columns(-3, 2).width() == 2);
  const Area none = area.rows(20, 20).columns(30, 30);
  none.put(0, 0, "nothing");
  none.paint(0, Style::kBad);
  for (int y = 0; y < 10; ++y) CHECK(canvas.row(y).empty());
}

TEST_CASE("what other machines say cannot write elsewhere") {
  Canvas canvas(20, 1);
  struct Case {
    std::string_view text, shown;
  };
  const Case cases[] = {
      {"plain", "plain"},
      {"esc\x1b[2J", "esc?[2J"},
      {"tab\tnl\nbell\a", "tab?nl?bell?"},
      {"\xc3\xa9t\xc3\xa9", "\xc3\xa9t\xc3\xa9"},
      {"\xe2\x96\x88\xe2\x86\x92", "\xe2\x96\x88\xe2\x86\x92"},
      {"wide \xe6\xbc\xa2", "wide ?"},
      {"turn \xe2\x80\xae", "turn ?"},  // right-to-left override
      {"over e\xcc\x81", "over e?"},    // a combining accent
      {"c1 \xc2\x9b", "c1 ?"},          // a control sequence introducer
      {"smile \xf0\x9f\x98\x80", "smile ?"},
      {"cut \xe6\xbc", "cut ?"},
      {"bad \xff\xfe", "bad ??"},
  };
  for (const Case& c : cases) {
    Canvas line(20, 1);
    Area(line).put(0, 0, c.text);
    CHECK(line.row(0) == c.shown);
    CHECK(columns_of(c.text) == columns_of(c.shown));
  }
}

TEST_CASE("bars are filled to their share") {
  for (const auto& [share, shown] : {std::pair(0.0, "--------"),
                                     {0.5, "####----"},
                                     {0.06, "--------"},
                                     {0.07, "#-------"},
                                     {1.0, "########"},
                                     {7.0, "########"},
                                     {-1.0, "--------"}}) {
    Canvas canvas(8, 1);
    CHECK(put_bar(Area(canvas), 0, 0, 8, share, Style::kGood, ascii_glyphs()) == 8);
    CHECK(canvas.row(0) == shown);
  }
}

}  // namespace troupe::console
