#include "tools/troupe/bench/svg_plot.h"

#include <algorithm>
#include <cmath>

#include "tools/troupe/bench/printed.h"

namespace troupe::bench {
namespace {

constexpr double kWidth = 760, kHeight = 300;
constexpr double kLeft = 64, kRight = 64, kTop = 34, kBottom = 46;
constexpr const char* kDashes[] = {"", "7 4", "2 3", "10 3 2 3", "4 4", "1 4"};
/// What the name of a tick takes of the axis below.
constexpr double kTickName = 34;
constexpr std::size_t kColours = std::size(kDashes);

std::string text_at(double x, double y, const char* anchor, const std::string& text,
                    const char* kind = "label") {
  return printed("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\" class=\"%s\">", x, y, anchor,
                 kind) +
         escaped(text) + "</text>\n";
}

std::string tick_name(double value) { return printed("%.6g", value); }

/// What the drawing's coordinates mean.
class Frame {
 public:
  explicit Frame(const Plot& plot) : doubles_(plot.x_doubles) {
    double x = 0, left = 0, right = 0;
    for (const Series& series : plot.series)
      for (const auto& [at, value] : series.points) {
        x = std::max(x, at);
        double& most = series.right ? right : left;
        most = std::max(most, value);
      }
    for (const PlotMark& mark : plot.marks) x = std::max(x, mark.x);
    x_ticks_ = doubles_ ? points_of(plot) : ticks(x);
    left_ticks_ = ticks(left);
    right_ticks_ = ticks(right);
    x_max_ = std::max(x, x_ticks_.size() > 1 ? x_ticks_[1] * 0.5 : 1.0);
  }

  double x(double value) const {
    return kLeft + (kWidth - kLeft - kRight) * std::clamp(x_share(value), 0.0, 1.0);
  }
  double y(double value, bool right) const {
    const double most = right ? right_ticks_.back() : left_ticks_.back();
    return kHeight - kBottom - (kHeight - kTop - kBottom) * std::clamp(value / most, 0.0, 1.0);
  }

  std::string axes(const Plot& plot) const {
    std::string out;
    for (const double tick : left_ticks_) {
      out += printed("<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" class=\"grid\"/>\n",
                     kLeft, kWidth - kRight, y(tick, false), y(tick, false));
      out += text_at(kLeft - 6, y(tick, false) + 4, "end", tick_name(tick));
    }
    if (!plot.right_label.empty())
      for (const double tick : right_ticks_)
        out += text_at(kWidth - kRight + 6, y(tick, true) + 4, "start", tick_name(tick));
    double named_to = 0;
    for (const double tick : x_ticks_) {
      if (tick > x_max_ * 1.0001 || x(tick) < named_to) continue;
      out += text_at(x(tick), kHeight - kBottom + 16, "middle", tick_name(tick));
      named_to = x(tick) + kTickName;
    }
    out += text_at((kLeft + kWidth - kRight) / 2, kHeight - 10, "middle", plot.x_label);
    out += text_at(4, kTop - 12, "start", plot.y_label);
    return out + text_at(kWidth - 4, kTop - 12, "end", plot.right_label);
  }

 private:
  /// Those that can be on an axis that doubles, ascending, each once.
  static std::vector<double> points_of(const Plot& plot) {
    std::vector<double> points;
    for (const Series& series : plot.series)
      for (const auto& [at, value] : series.points)
        if (at > 0 && std::isfinite(at)) points.push_back(at);
    std::sort(points.begin(), points.end());
    points.erase(std::unique(points.begin(), points.end()), points.end());
    return points;
  }

  double x_share(double value) const {
    if (!doubles_) return value / x_max_;
    if (x_ticks_.size() < 2) return 0.5;
    const double least = x_ticks_.front();
    return std::log(std::max(value, least) / least) / std::log(x_ticks_.back() / least);
  }

  const bool doubles_;
  std::vector<double> x_ticks_, left_ticks_, right_ticks_;
  double x_max_ = 1;
};

std::string bars(const Frame& frame, const Series& series, std::size_t colour) {
  std::string out;
  for (std::size_t i = 0; i + 1 < series.points.size(); ++i) {
    const auto [at, value] = series.points[i];
    const double x = frame.x(at), y = frame.y(value, series.right);
    const double width = std::max(0.5, frame.x(series.points[i + 1].first) - x - 0.5);
    out += printed(
        "<rect x=\"%.1f\" y=\"%.1f\" width=\"%.1f\" height=\"%.1f\" fill=\"var(--c%zu)\" "
        "opacity=\"0.55\"><title>%.6g: %.6g</title></rect>\n",
        x, y, width, frame.y(0, series.right) - y, colour, at, value);
  }
  return out;
}

std::string dot(double x, double y, std::size_t colour, double at, double value) {
  const std::string title = printed("<title>%.6g: %.6g</title>", at, value);
  const std::string fill = printed("fill=\"var(--c%zu)\"", colour);
  if (colour % 3 == 0)
    return printed("<circle cx=\"%.1f\" cy=\"%.1f\" r=\"4\" %s>", x, y, fill.c_str()) + title +
           "</circle>\n";
  if (colour % 3 == 1)
    return printed("<rect x=\"%.1f\" y=\"%.1f\" width=\"8\" height=\"8\" %s>", x - 4, y - 4,
                   fill.c_str()) +
           title + "</rect>\n";
  return printed("<path d=\"M%.1f %.1fl5 9h-10z\" %s>", x, y - 5, fill.c_str()) + title +
         "</path>\n";
}

std::string line(const Frame& frame, const Series& series, std::size_t colour) {
  std::string path, dots;
  for (const auto& [at, value] : series.points) {
    const double x = frame.x(at), y = frame.y(value, series.right);
    path += printed("%s%.1f %.1f", path.empty() ? "M" : "L", x, y);
    if (series.form == Series::Form::kLineAndDots) dots += dot(x, y, colour, at, value);
  }
  if (path.empty()) return {};
  return printed(
             "<path fill=\"none\" stroke=\"var(--c%zu)\" stroke-width=\"2\" "
             "stroke-dasharray=\"%s\" d=\"",
             colour, kDashes[colour]) +
         path + "\"/>\n" + dots;
}

std::string marks(const Frame& frame, const Plot& plot) {
  std::string out;
  for (const PlotMark& mark : plot.marks) {
    const double x = frame.x(mark.x);
    out += printed(
        "<g class=\"mark%s\"><line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\"/>"
        "<path d=\"M%.1f %.1fl-5 -8h10z\"/><title>",
        mark.strong ? " strong" : "", x, x, kTop, kHeight - kBottom, x, kTop + 2);
    out += printed("%.2f s ", mark.x) + escaped(mark.label + ": " + mark.text) + "</title></g>\n";
  }
  return out;
}

std::string legend(const Plot& plot) {
  std::string out = "<div class=\"legend\">";
  for (std::size_t i = 0; i < plot.series.size(); ++i) {
    const std::size_t colour = i % kColours;
    out += printed(
        "<span><svg width=\"30\" height=\"10\"><line x1=\"0\" x2=\"30\" y1=\"5\" y2=\"5\" "
        "stroke=\"var(--c%zu)\" stroke-width=\"%d\" stroke-dasharray=\"%s\"/></svg>",
        colour, plot.series[i].form == Series::Form::kBars ? 8 : 2, kDashes[colour]);
    out += escaped(plot.series[i].name) + "</span> ";
  }
  return out + "</div>\n";
}

}  // namespace

std::vector<double> ticks(double most) {
  if (!(most > 0) || !std::isfinite(most)) return {0, 1};
  const double rough = most / 5;
  const double power = std::pow(10, std::floor(std::log10(rough)));
  const double step = power * (rough <= power       ? 1
                               : rough <= 2 * power ? 2
                               : rough <= 5 * power ? 5
                                                    : 10);
  std::vector<double> steps;
  for (int i = 0; i <= 12; ++i) {
    steps.push_back(i * step);
    if (steps.back() >= most * 0.9999) break;
  }
  return steps;
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else if (c == '\'')
      out += "&#39;";
    else
      out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  }
  return out;
}

std::string svg(const Plot& plot) {
  const Frame frame(plot);
  std::string out = "<figure><figcaption>" + escaped(plot.title) + "</figcaption>\n";
  out += printed("<svg viewBox=\"0 0 %.0f %.0f\" role=\"img\" aria-label=\"", kWidth, kHeight) +
         escaped(plot.title) + "\">\n" + frame.axes(plot);
  for (std::size_t i = 0; i < plot.series.size(); ++i)
    out += plot.series[i].form == Series::Form::kBars ? bars(frame, plot.series[i], i % kColours)
                                                      : line(frame, plot.series[i], i % kColours);
  return out + marks(frame, plot) + "</svg>\n" + legend(plot) + "</figure>\n";
}

}  // namespace troupe::bench
