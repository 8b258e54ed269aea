#include <algorithm>
#include <numeric>

#include "tools/troupe/console/fitting.h"
#include "tools/troupe/console/format.h"
#include "tools/troupe/console/view.h"

namespace troupe::console {
namespace {

constexpr int kLabel = 5;  // "L 12 "

/// How large an expert's tile is, or how many experts share a column.
struct Grid {
  int columns_each = 1;  ///< 2 where copies can be counted behind the load, 3 with a gap
  int experts_each = 1;  ///< of a column, where there are more experts than columns
  int rows_each = 1;     ///< of a layer, the last one a gap if there are several
  Grid(int experts, int width, std::size_t layers, int height) {
    if (width < 1 || experts < 1) return;
    columns_each = std::clamp(width / experts, 1, 3);
    experts_each = (experts + width - 1) / width;
    if (layers == 0) return;
    rows_each =
        std::clamp(height / static_cast<int>(std::min<std::size_t>(layers, 1000)), 1, kTileRowsMax);
  }
};

double mean_of(const std::vector<double>& tokens) {
  return tokens.empty() ? 0
                        : std::accumulate(tokens.begin(), tokens.end(), 0.0) /
                              static_cast<double>(tokens.size());
}

/// What one column says of the experts `first` to `last`.
struct Spot {
  int level = -1;  ///< -1: not measured
  std::size_t copies_max = 0;
  bool missing = false, moved = false;
};

class Row {
 public:
  Row(const LayerFacts& layer, std::int32_t experts, const MoveLog& moves)
      : layer_(layer), mean_(mean_of(layer.tokens)), moved_(moves.moved(layer.layer, experts)) {
    copies_.resize(static_cast<std::size_t>(experts));
    for (const auto& slot : layer.slots) ++copies_[static_cast<std::size_t>(slot.expert)];
  }
  Spot spot(std::int32_t first, std::int32_t last) const {
    Spot spot;
    for (auto e = static_cast<std::size_t>(first); e <= static_cast<std::size_t>(last); ++e) {
      if (!layer_.tokens.empty())
        spot.level = std::max(spot.level, heat_level(layer_.tokens[e], mean_));
      spot.copies_max = std::max(spot.copies_max, copies_[e]);
      spot.missing |= copies_[e] == 0;
      spot.moved |= moved_[e];
    }
    return spot;
  }

 private:
  const LayerFacts& layer_;
  double mean_;
  std::vector<bool> moved_;
  std::vector<std::size_t> copies_;
};

void draw_spot(const Area& area, int x, int y, const Spot& spot, const Grid& grid,
               const Glyphs& glyphs) {
  const bool copied = spot.copies_max > 1;
  char32_t glyph = U'o';  // placed, not measured
  Style style = Style::kPlain;
  if (spot.level >= 0) {
    glyph = glyphs.heat[static_cast<std::size_t>(spot.level)];
    style = heat(spot.level);
  }
  if (spot.missing) {
    glyph = U'X';
    style = Style::kBad;
  }
  if (spot.moved) style = Style::kMoved;
  if (spot.moved && !spot.missing && glyph == U' ') glyph = U'.';
  const int rows = std::max(1, grid.rows_each - 1);
  for (int row = 0; row < rows; ++row) {
    area.glyph(x, y + row, glyph, style, copied && row == rows - 1);
    if (grid.columns_each == 3) area.glyph(x + 1, y + row, glyph, style);
  }
  if (grid.columns_each == 1 || (grid.columns_each == 3 && !copied)) return;
  const char32_t count =
      !copied ? U' ' : U'0' + static_cast<char32_t>(std::min<std::size_t>(spot.copies_max, 9));
  area.glyph(x + 1, y, count, spot.moved ? Style::kMoved : style);
}

void draw_row(const Area& area, int y, const LayerFacts& layer, const Facts& facts, const Ui& ui,
              const Grid& grid, bool selected) {
  area.put_right(0, y, kLabel - 1, "L" + std::to_string(layer.layer),
                 selected ? Style::kSelected : Style::kDim);
  const std::int32_t experts = facts.experts.experts;
  const Row row(layer, experts, ui.moves);
  int x = kLabel;
  for (std::int32_t e = 0; e < experts; e += grid.experts_each, x += grid.columns_each)
    draw_spot(area, x, y, row.spot(e, std::min(e + grid.experts_each, experts) - 1), grid,
              ui.glyphs);
}

std::string text_of(const Move& move, std::string_view arrow) {
  std::string text =
      "layer " + std::to_string(move.layer) + " expert " + std::to_string(move.expert) + " ";
  if (move.from.empty()) return text + "copied to " + move.to;
  if (move.to.empty()) return text + "dropped by " + move.from;
  return text + move.from + " " + std::string(arrow) + " " + move.to;
}

/// The last line: what the colours mean, or what moves.
void draw_legend(const Area& area, const Facts& facts, const Ui& ui) {
  if (const auto& recent = ui.moves.recent(); !recent.empty()) {
    constexpr std::size_t kShownMax = 16;
    const std::string count = "moved " + std::to_string(recent.size()) + " just now: ";
    std::vector<std::string> newest;
    for (auto entry = recent.rbegin(); entry != recent.rend() && newest.size() < kShownMax; ++entry)
      newest.push_back(text_of(entry->move, ui.glyphs.arrow));
    const int width = area.width() - columns_of(count);
    area.put_left(0, 0, area.width(), count + fitting(newest, ", ", width), Style::kMoved);
    return;
  }
  const bool measured = std::any_of(facts.experts.layers.begin(), facts.experts.layers.end(),
                                    [](const auto& layer) { return !layer.tokens.empty(); });
  int x = kLabel;
  if (measured) {
    x = area.put(x, 0, "load, of the mean:", Style::kDim) + 1;
    constexpr std::array<std::string_view, kHeatLevels> kNames{"none", "<1/2", "<1",
                                                               "<2",   "<4",   "4+"};
    for (int level = 0; level < kHeatLevels; ++level) {
      area.glyph(x++, 0, ui.glyphs.heat[static_cast<std::size_t>(level)], heat(level));
      x = area.put(x, 0, kNames[static_cast<std::size_t>(level)], Style::kDim) + 1;
    }
  } else {
    x = area.put(x, 0, "o placed (load not measured)", Style::kDim) + 1;
  }
  // These can be guessed where there is no room for them.
  const auto mark = [&](std::string_view glyph, std::string_view name, Style style, bool line) {
    if (x + columns_of(glyph) + columns_of(name) > area.width()) return;
    x = area.put(x, 0, glyph, style, line);
    x = area.put(x, 0, name, Style::kDim);
  };
  mark("X", " nowhere ", Style::kBad, false);
  mark("2", " copies", Style::kDim, true);
}

}  // namespace

void draw_heat_map(const Area& area, const Facts& facts, Ui& ui, bool active) {
  const ExpertFacts& experts = facts.experts;
  const Grid grid(experts.experts, area.width() - kLabel, experts.layers.size(), area.height() - 2);
  std::vector<std::string> more = expert_clauses(facts);
  if (grid.experts_each > 1 && !more.empty())
    more.insert(more.begin() + 1, std::to_string(grid.experts_each) + " experts a column");
  const Area inside = draw_heading(area, ui, "experts", more, std::nullopt, active);
  if (experts.layers.empty()) {
    inside.put(1, 0, "none are placed", Style::kDim);
    return;
  }
  const Area rows = inside.rows(0, inside.height() - 1);
  const std::size_t at = chosen(List::kLayers, facts, ui);
  const std::size_t first =
      first_in_sight(at, experts.layers.size(), rows.height() / grid.rows_each);
  for (std::size_t i = first; i < experts.layers.size(); ++i) {
    const int y = static_cast<int>(i - first) * grid.rows_each;
    if (y >= rows.height()) break;
    draw_row(rows, y, experts.layers[i], facts, ui, grid, active && i == at);
  }
  draw_legend(inside.rows(inside.height() - 1, 1), facts, ui);
}

}  // namespace troupe::console
