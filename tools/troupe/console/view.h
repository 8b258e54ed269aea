#pragma once

#include <algorithm>
#include <array>

#include "tools/troupe/console/canvas.h"
#include "tools/troupe/console/facts.h"
#include "tools/troupe/console/ui.h"

namespace troupe::console {

/// The least that it can be drawn in; below that it says so.
inline constexpr int kWidthMin = 30, kHeightMin = 8;
/// Rows that a layer takes in the map at most.
inline constexpr int kTileRowsMax = 3;

/// Draws what `ui` looks at. Pure: the same facts, state and size give the same cells. `facts` is
/// null before the first status. `ui.page_rows` is set to what a page of its list shows.
Canvas draw(const Facts* facts, Ui& ui, int width, int height);

/// Shares `total` rows among sections that want so many: each gets its least first, the earlier
/// ones before the later; the rest goes round. What nobody wants goes to the last.
template <std::size_t kCount>
std::array<int, kCount> share_rows(int total, std::array<int, kCount> wants,
                                   std::array<int, kCount> least);

// The parts, as they share the screen.
void draw_nodes(const Area& area, const Facts& facts, Ui& ui, bool active);
void draw_replicas(const Area& area, const Facts& facts, Ui& ui, bool active);
void draw_heat_map(const Area& area, const Facts& facts, Ui& ui, bool active);
void draw_events(const Area& area, const Facts& facts, Ui& ui, bool active);
void draw_requests(const Area& area, const Facts& facts, Ui& ui, bool active);
void draw_node(const Area& area, const Facts& facts, const Ui& ui, const std::string& name,
               bool active);
void draw_layer_page(const Area& area, const Facts& facts, Ui& ui);
void draw_request_page(const Area& area, const Facts& facts, Ui& ui);
void draw_help(const Area& area);

// Shared by the parts.

/// The line above a list: its name, how it is sorted, and as much more as fits; returns the rest.
Area draw_heading(const Area& area, const Ui& ui, std::string_view name,
                  const std::vector<std::string>& more, std::optional<List> list, bool active);
/// The rows of a list that are in sight: the first one, so that the chosen one is among them.
std::size_t first_in_sight(std::size_t chosen, std::size_t rows, int height);
Style state_style(std::string_view state);
/// How much an expert has to do: 0 (nothing) to kHeatLevels - 1, by its share of the mean.
int heat_level(double tokens, double mean);

// --- Inline -------------------------------------------------------------------------------------

template <std::size_t kCount>
std::array<int, kCount> share_rows(int total, std::array<int, kCount> wants,
                                   std::array<int, kCount> least) {
  std::array<int, kCount> rows{};
  for (std::size_t i = 0; i < kCount; ++i) {
    rows[i] = std::clamp(std::min(wants[i], least[i]), 0, total);
    total -= rows[i];
  }
  for (bool given = true; given && total > 0;) {
    given = false;
    for (std::size_t i = 0; i < kCount && total > 0; ++i) {
      if (rows[i] >= wants[i]) continue;
      ++rows[i], --total;
      given = true;
    }
  }
  rows[kCount - 1] += std::max(0, total);
  return rows;
}

}  // namespace troupe::console
