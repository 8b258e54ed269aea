#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace troupe::bench {

/// Points that belong together. They are told apart by colour and by dashes or the shape of dots,
/// so that nobody needs to see colours.
struct Series {
  enum class Form : unsigned char { kLine, kLineAndDots, kBars };
  std::string name;
  std::vector<std::pair<double, double>> points;  ///< x ascending; bars reach to the next x
  Form form = Form::kLine;
  bool right = false;  ///< measured by the axis on the right
};

/// A moment on the axis below; the text shows when it is pointed at.
struct PlotMark {
  double x = 0;
  std::string label, text;
  bool strong = false;
};

struct Plot {
  std::string title, x_label, y_label, right_label = {};
  bool x_doubles = false;  ///< as far from 1 to 2 as from 2 to 4, with a tick at each point
  std::vector<Series> series = {};
  std::vector<PlotMark> marks = {};
};

/// An <svg> element that takes its colours from the page (--ink, --faint, --c0 to --c5).
std::string svg(const Plot& plot);

/// For text and attributes of HTML. What is no UTF-8 is left to the reader's program.
std::string escaped(std::string_view text);

/// Round numbers from 0 to at least `most`: the steps of an axis, about five of them.
std::vector<double> ticks(double most);

}  // namespace troupe::bench
