#include "tools/troupe/console/view.h"

#include <algorithm>
#include <cmath>

#include "tools/troupe/console/format.h"

namespace troupe::console {
namespace {

/// Wide enough for two columns of panels.
constexpr int kTwoColumns = 140;
constexpr int kFooterRows = 1;
constexpr std::size_t kMessageRowsMax = 3;

void draw_title(const Area& area, const Facts* facts, const Ui& ui) {
  area.paint(0, Style::kTitle);
  const std::string clock = clock_time(ui.now_unix_s, ui.utc_offset_s) + " ";
  std::string left = " troupe top";
  if (facts) {
    left += "  " + facts->model + "  " + facts->state;
    if (facts->placement_version) left += "  version " + std::to_string(*facts->placement_version);
    if (!facts->numerics.empty()) left += "  " + facts->numerics;
    left += "  up " + short_time(facts->uptime_s);
  }
  const int clock_width = columns_of(clock);
  area.put_left(0, 0, area.width() - clock_width - 1, left, Style::kTitle);
  area.put(area.width() - clock_width, 0, clock, Style::kTitle);
}

struct Line {
  std::string text;
  Style style = Style::kPlain;
};

/// What is to be said of the cluster before all else.
Line message_of(const Facts* facts, const Ui& ui) {
  if (ui.connected) return facts ? Line{facts->message, state_style(facts->state)} : Line{};
  std::string text = facts ? "No answer from the head for " + short_time(ui.silent_s) +
                                 "; what is shown was so then."
                           : "Looking for the head.";
  if (!ui.link_why.empty()) text += " " + ui.link_why;
  return {text, Style::kBad};
}

/// Broken between words, in `rows_max` rows.
std::vector<std::string> broken(std::string_view text, int width, std::size_t rows_max) {
  std::vector<std::string> rows;
  while (rows.size() + 1 < rows_max && text.size() > static_cast<std::size_t>(width)) {
    const std::size_t space = text.rfind(' ', static_cast<std::size_t>(width));
    if (space == text.npos || space == 0) break;
    rows.emplace_back(text.substr(0, space));
    text.remove_prefix(space + 1);
  }
  rows.emplace_back(text);
  return rows;
}

/// Returns how many rows it took.
int draw_header(const Area& area, const Facts* facts, const Ui& ui) {
  draw_title(area, facts, ui);
  const Line message = message_of(facts, ui);
  int y = 1;
  for (const auto& row : broken(message.text, area.width(), kMessageRowsMax))
    area.put_left(0, y++, area.width(), row, message.style);
  if (!facts) return y;
  area.put_left(0, y++, area.width(), rates_text(*facts), Style::kStrong);
  std::string counts = requests_text(*facts);
  if (const std::string survives = survives_text(*facts); !survives.empty())
    counts += area.width() >= 110 ? "   " + survives : "";
  area.put_left(0, y++, area.width(), counts);
  return y;
}

std::string question_text(const Command& question) {
  if (question.kind == Command::Kind::kDrain)
    return "Move everything off " + question.node + " and let it leave? (y or n)";
  return "Move experts now, so that the load is even? (y or n)";
}

std::string_view keys_of(Page page) {
  switch (page) {
    case Page::kOverview:
      return "Tab Up Down go  Enter look  s sort  m map  r requests  e events  ? help  q quit";
    case Page::kNode:
      return "d drain this node  Backspace back  o overview  ? help  q quit";
    case Page::kMap:
    case Page::kRequests:
    case Page::kEvents:
    case Page::kLayer:
      return "Up/Down choose  Enter look  s sort  Backspace back  o overview  ? help  q quit";
    case Page::kRequest:
    case Page::kHelp:
      break;
  }
  return "Backspace back  o overview  ? help  q quit";
}

void draw_footer(const Area& area, const Ui& ui) {
  if (ui.question) {
    area.put_left(0, 0, area.width(), question_text(*ui.question), Style::kSelected);
  } else if (!ui.note.empty()) {
    area.put_left(0, 0, area.width(), ui.note, Style::kStrong);
  } else {
    area.put_left(0, 0, area.width(), keys_of(ui.page), Style::kDim);
  }
}

/// Rows that the nodes would like: one a device and the heading.
int node_rows(const Facts& facts) {
  std::size_t rows = 1;
  for (const auto& node : facts.nodes) rows += std::max<std::size_t>(1, node.devices.size());
  return static_cast<int>(std::min<std::size_t>(rows, 1000));
}

int list_rows(std::size_t items) {
  return static_cast<int>(std::min<std::size_t>(items, 1000)) + 1;
}

void draw_overview(const Area& area, const Facts& facts, Ui& ui) {
  const auto active = [&](List list) { return ui.panel == static_cast<std::size_t>(list); };
  const int nodes = node_rows(facts), replicas = list_rows(facts.replicas.size());
  // Two lines more: the legend, and the newest move.
  const int layers = facts.experts.layers.empty() ? 2 : list_rows(facts.experts.layers.size()) + 1;
  const int events = list_rows(facts.events.size());
  if (area.width() >= kTwoColumns) {
    const auto [top, bottom] =
        share_rows<2>(area.height(), {std::max(nodes + replicas, layers), events}, {12, 5});
    const int half = area.width() / 2;
    const Area left = area.rows(0, top).columns(0, half - 1);
    const auto rows = share_rows<2>(top, {nodes, replicas}, {6, 3});
    draw_nodes(left.rows(0, rows[0]), facts, ui, active(List::kNodes));
    draw_replicas(left.rows(rows[0], rows[1]), facts, ui, active(List::kReplicas));
    draw_heat_map(area.rows(0, top).columns(half, area.width() - half), facts, ui,
                  active(List::kLayers));
    draw_events(area.rows(top, bottom), facts, ui, active(List::kEvents));
    return;
  }
  const auto rows = share_rows<4>(area.height(), {nodes, replicas, layers, events}, {4, 3, 4, 3});
  int y = 0;
  draw_nodes(area.rows(y, rows[0]), facts, ui, active(List::kNodes));
  draw_replicas(area.rows(y += rows[0], rows[1]), facts, ui, active(List::kReplicas));
  draw_heat_map(area.rows(y += rows[1], rows[2]), facts, ui, active(List::kLayers));
  draw_events(area.rows(y += rows[2], rows[3]), facts, ui, active(List::kEvents));
}

void draw_page(const Area& area, const Facts& facts, Ui& ui) {
  switch (ui.page) {
    case Page::kOverview:
      return draw_overview(area, facts, ui);
    case Page::kMap:
      return draw_heat_map(area, facts, ui, true);
    case Page::kRequests:
      return draw_requests(area, facts, ui);
    case Page::kEvents:
      return draw_events(area, facts, ui, true);
    case Page::kNode:
      return draw_node_page(area, facts, ui);
    case Page::kLayer:
      return draw_layer_page(area, facts, ui);
    case Page::kRequest:
      return draw_request_page(area, facts, ui);
    case Page::kHelp:
      return draw_help(area);
  }
}

}  // namespace

Canvas draw(const Facts* facts, Ui& ui, int width, int height) {
  Canvas canvas(width, height);
  const Area area(canvas);
  if (width < kWidthMin || height < kHeightMin) {
    area.put(0, 0, "Too small; q quits.");
    return canvas;
  }
  const int header_rows = draw_header(area, facts, ui);
  const Area page = area.rows(header_rows, height - header_rows - kFooterRows);
  ui.page_rows = std::max(1, page.height() - 1);
  draw_footer(area.rows(height - kFooterRows, kFooterRows), ui);
  if (ui.page == Page::kHelp) {
    draw_help(page);
  } else if (facts) {
    draw_page(page, *facts, ui);
  }
  return canvas;
}

Area draw_heading(const Area& area, const Ui& ui, std::string_view name, std::string_view more,
                  std::optional<List> list, bool active) {
  for (int x = 0; x < area.width(); ++x) area.glyph(x, 0, ui.glyphs.line, Style::kDim);
  int x = area.put(0, 0, active ? ">" : " ", Style::kStrong);
  x = area.put(x, 0, name, active ? Style::kStrong : Style::kPlain);
  if (list) {
    const auto names = orders(*list);
    const std::size_t order = ui.choice(*list).order;
    if (order < names.size()) x = area.put(x, 0, " by " + std::string(names[order]), Style::kDim);
  }
  if (!more.empty()) x = area.put(x, 0, "  " + std::string(more), Style::kDim);
  area.put(x, 0, " ");
  return area.rows(1, area.height() - 1);
}

std::size_t first_in_sight(std::size_t chosen, std::size_t rows, int height) {
  const auto shown = static_cast<std::size_t>(std::max(1, height));
  if (rows <= shown) return 0;
  const std::size_t half = shown / 2;
  return std::min(chosen > half ? chosen - half : 0, rows - shown);
}

Style state_style(std::string_view state) {
  if (state == "ready" || state == "running") return Style::kGood;
  if (state == "lost" || state == "degraded") return Style::kBad;
  return Style::kWarning;
}

int heat_level(double tokens, double mean) {
  if (tokens <= 0) return 0;
  if (mean <= 0) return 1;
  // A quarter of the mean, half, the mean, 2, 4 times; a level each.
  const double level = 4 + std::floor(std::log2(tokens / mean));
  return static_cast<int>(std::clamp(level, 1.0, static_cast<double>(kHeatLevels - 1)));
}

}  // namespace troupe::console
