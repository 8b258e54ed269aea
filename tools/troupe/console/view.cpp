#include "tools/troupe/console/view.h"

#include <algorithm>
#include <cmath>

#include "tools/troupe/console/fitting.h"
#include "tools/troupe/console/format.h"

namespace troupe::console {
namespace {

/// Wide enough for two columns of panels.
constexpr int kTwoColumns = 140;
constexpr int kFooterRows = 1;
constexpr std::size_t kMessageRowsMax = 3, kClauseRowsMax = 2;
/// What a node of one device, one replica and a few layers has to say, and its heading.
constexpr int kNodePageRows = 14;

void draw_title(const Area& area, const Facts* facts, const Ui& ui) {
  area.paint(0, Style::kTitle);
  const bool narrow = area.width() < 44;  // too narrow for the time
  const std::string clock = narrow ? "" : clock_time(ui.now_unix_s, ui.utc_offset_s);
  const int width = area.width() - columns_of(clock) - (narrow ? 2 : 4);
  std::vector<std::string> clauses;
  if (facts) {
    clauses = {facts->model, facts->state, "up " + short_time(facts->uptime_s)};
    if (facts->placement_version)
      clauses.push_back("version " + std::to_string(*facts->placement_version));
    clauses.push_back(facts->numerics);
  }
  clauses.push_back("troupe top");
  area.put_left(1, 0, width, fitting(clauses, "  ", width), Style::kTitle);
  area.put(area.width() - columns_of(clock) - 1, 0, clock, Style::kTitle);
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

/// Beside each other where they fit, else below; what has no room is left out whole. Returns the
/// row behind them.
int put_clauses(const Area& area, int y, const std::vector<Line>& clauses) {
  int x = 0;
  for (const auto& [text, style] : clauses) {
    if (text.empty()) continue;
    const auto rows = broken(text, area.width(), kClauseRowsMax);
    const bool beside = x > 0 && x + 3 + columns_of(text) <= area.width();
    const int first = beside ? y - 1 : y, last = first + static_cast<int>(rows.size());
    if (last > area.height()) continue;
    x = beside ? x + 3 : 0;
    for (int row = first; row < last; ++row)
      area.put_left(x, row, area.width() - x, rows[static_cast<std::size_t>(row - first)], style);
    x = rows.size() == 1 ? x + columns_of(text) : area.width();
    y = last;
  }
  return y;
}

/// Returns how many rows it took: the panels need the rest of a low screen.
int draw_header(const Area& screen, const Facts* facts, const Ui& ui) {
  const Area area = screen.rows(0, std::clamp(screen.height() - 17, 3, 7));
  draw_title(area, facts, ui);
  const Line message = message_of(facts, ui);
  int y = 1;
  const int rows_max = std::min<int>(kMessageRowsMax, area.height() - y);
  for (const auto& row : broken(message.text, area.width(), static_cast<std::size_t>(rows_max)))
    area.put_left(0, y++, area.width(), row, message.style);
  if (!facts) return y;
  return put_clauses(area, y,
                     {{requests_text(*facts)},
                      {rates_text(*facts), Style::kStrong},
                      {survives_text(*facts)},
                      {proofs_text(*facts)}});
}

std::string question_text(const Command& question) {
  if (question.kind == Command::Kind::kDrain)
    return "Move everything off " + question.node + " and let it leave? (y or n)";
  return "Move experts now, so that the load is even? (y or n)";
}

/// The weightiest first; help and the end stand behind them.
std::vector<std::string> keys_of(Page page) {
  switch (page) {
    case Page::kOverview:
      return {"Tab Up Down go", "Enter look", "s sort", "m map", "r requests", "e events"};
    case Page::kNode:
      return {"d drain this node", "Backspace back", "o overview"};
    case Page::kMap:
    case Page::kRequests:
    case Page::kEvents:
    case Page::kLayer:
      return {"Up/Down choose", "Enter look", "s sort", "Backspace back", "o overview"};
    case Page::kRequest:
    case Page::kHelp:
      break;
  }
  return {"Backspace back", "o overview"};
}

void draw_footer(const Area& area, const Ui& ui) {
  if (ui.question) {
    area.put_left(0, 0, area.width(), question_text(*ui.question), Style::kSelected);
  } else if (!ui.note.empty()) {
    area.put_left(0, 0, area.width(), ui.note, Style::kStrong);
  } else {
    const std::string always = "  ? help  q quit";
    const int width = area.width() - columns_of(always);
    area.put(0, 0, fitting(keys_of(ui.page), "  ", width) + always, Style::kDim);
  }
}

/// Rows that the nodes would like: one a device, the standby's, and the heading.
int node_rows(const Facts& facts) {
  std::size_t rows = facts.standby.address.empty() ? 1 : 2;
  for (const auto& node : facts.nodes) rows += std::max<std::size_t>(1, node.devices.size());
  return static_cast<int>(std::min<std::size_t>(rows, 1000));
}

int list_rows(std::size_t items) {
  return static_cast<int>(std::min<std::size_t>(items, 1000)) + 1;
}

/// Rows of the map's panel: the heading, the layers and the legend.
int map_rows(const Facts& facts, int rows_each) {
  const int layers = list_rows(facts.experts.layers.size()) - 1;
  return layers == 0 ? 2 : layers * rows_each + 2;
}

bool active(const Ui& ui, List list) { return ui.panel == static_cast<std::size_t>(list); }

/// Two columns, and the events below them. What the lists leave free shows the chosen node, larger
/// tiles, and requests.
void draw_wide_overview(const Area& area, const Facts& facts, Ui& ui) {
  const int nodes = node_rows(facts), replicas = list_rows(facts.replicas.size());
  const int requests = 1 + list_rows(std::max<std::size_t>(1, facts.requests.size()));
  const int events = std::max(list_rows(facts.events.size()), area.height() / 3);
  const auto [top, bottom] = share_rows<2>(
      area.height(),
      {std::max(nodes + replicas + kNodePageRows, map_rows(facts, kTileRowsMax) + requests),
       events},
      {12, 5});
  const int half = area.width() / 2;
  const Area left = area.rows(0, top).columns(0, half - 1);
  const Area right = area.rows(0, top).columns(half, area.width() - half);
  const auto l = share_rows<3>(top, {nodes, replicas, kNodePageRows}, {6, 3, 0});
  draw_nodes(left.rows(0, l[0]), facts, ui, active(ui, List::kNodes));
  draw_replicas(left.rows(l[0], l[1]), facts, ui, active(ui, List::kReplicas));
  if (const std::string node = chosen_node(facts, ui); !node.empty() && l[2] > 2)
    draw_node(left.rows(l[0] + l[1], l[2]), facts, ui, node, false);
  const auto r = share_rows<2>(top, {map_rows(facts, kTileRowsMax), requests},
                               {std::min(top, map_rows(facts, 1)), 0});
  draw_heat_map(right.rows(0, r[0]), facts, ui, active(ui, List::kLayers));
  if (r[1] > 2) draw_requests(right.rows(r[0], r[1]), facts, ui, false);
  draw_events(area.rows(top, bottom), facts, ui, active(ui, List::kEvents));
}

/// The panels below each other; where there is no room for all, the active one and those before.
void draw_overview(const Area& area, const Facts& facts, Ui& ui) {
  if (area.width() >= kTwoColumns) return draw_wide_overview(area, facts, ui);
  std::array<int, kPanels> wants{node_rows(facts), list_rows(facts.replicas.size()),
                                 map_rows(facts, 1), list_rows(facts.events.size())};
  std::array<int, kPanels> least{4, 3, 4, 3};
  int room = area.height() - least[ui.panel];
  for (std::size_t i = 0; i < kPanels; ++i) {
    if (i == ui.panel) continue;
    room -= least[i];
    if (room < 0) wants[i] = least[i] = 0;
  }
  const auto rows = share_rows<kPanels>(area.height(), wants, least);
  constexpr std::array kDraw{draw_nodes, draw_replicas, draw_heat_map, draw_events};
  int y = 0;
  for (std::size_t i = 0; i < kPanels; ++i) {
    if (rows[i] > 1) kDraw[i](area.rows(y, rows[i]), facts, ui, i == ui.panel);
    y += rows[i];
  }
}

void draw_page(const Area& area, const Facts& facts, Ui& ui) {
  switch (ui.page) {
    case Page::kOverview:
      return draw_overview(area, facts, ui);
    case Page::kMap:
      return draw_heat_map(area, facts, ui, true);
    case Page::kRequests:
      return draw_requests(area, facts, ui, true);
    case Page::kEvents:
      return draw_events(area, facts, ui, true);
    case Page::kNode:
      return draw_node(area, facts, ui, ui.node, true);
    case Page::kLayer:
      return draw_layer_page(area, facts, ui);
    case Page::kRequest:
      return draw_request_page(area, facts, ui);
    case Page::kHelp:
      break;
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
  draw_footer(area.rows(height - kFooterRows, kFooterRows), ui);
  if (ui.page == Page::kHelp) {
    draw_title(area, facts, ui);
    draw_help(area.rows(1, height - 1 - kFooterRows));
    return canvas;
  }
  const int header_rows = draw_header(area, facts, ui);
  const Area page = area.rows(header_rows, height - header_rows - kFooterRows);
  ui.page_rows = std::max(1, page.height() - 1);
  if (facts) draw_page(page, *facts, ui);
  return canvas;
}

Area draw_heading(const Area& area, const Ui& ui, std::string_view name,
                  const std::vector<std::string>& more, std::optional<List> list, bool active) {
  for (int x = 0; x < area.width(); ++x) area.glyph(x, 0, ui.glyphs.line, Style::kDim);
  int x = area.put(0, 0, active ? ">" : " ", Style::kStrong);
  x = area.put(x, 0, name, active ? Style::kStrong : Style::kPlain);
  if (list) {
    const auto names = orders(*list);
    const std::size_t order = ui.choice(*list).order;
    if (order < names.size()) x = area.put(x, 0, " by " + std::string(names[order]), Style::kDim);
  }
  if (const std::string text = fitting(more, ", ", area.width() - x - 2); !text.empty())
    x = area.put(x, 0, "  " + text, Style::kDim);
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
  // Under half of the mean, to the mean, to twice, to 4 times, more; a level each.
  const double level = 3 + std::floor(std::log2(tokens / mean));
  return static_cast<int>(std::clamp(level, 1.0, static_cast<double>(kHeatLevels - 1)));
}

}  // namespace troupe::console
