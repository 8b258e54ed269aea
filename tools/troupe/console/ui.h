#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "tools/troupe/console/canvas.h"
#include "tools/troupe/console/facts.h"
#include "tools/troupe/console/moves.h"

/// The console without a terminal: what is looked at, and what a key does to that.
namespace troupe::console {

enum class Page : std::uint8_t {
  kOverview,
  kMap,       ///< the experts on the whole screen
  kRequests,  ///< those that are not over
  kEvents,
  kNode,
  kLayer,
  kRequest,
  kHelp,
};

/// Lists that rows can be chosen from. The first four are the panels of the overview.
enum class List : std::uint8_t { kNodes, kReplicas, kLayers, kEvents, kRequests, kExperts };
inline constexpr std::size_t kLists = 6, kPanels = 4;

struct Key {
  enum Special : char32_t {
    kUp = 0x110000,  // behind all characters
    kDown,
    kPageUp,
    kPageDown,
    kHome,
    kEnd,
    kEnter,
    kBack,
    kNext,
    kPrevious,
    kRedraw,
  };
  char32_t code = 0;
};

/// What a key asks of the world outside.
struct Command {
  enum class Kind : std::uint8_t { kNone, kQuit, kDrain, kRebalance };
  Kind kind = Kind::kNone;
  std::string node;  ///< to drain
};

/// How a list is walked: by what names a row, so that the choice stays on it when others come, go
/// or are sorted.
struct Choice {
  std::string row;        ///< empty: none yet
  std::size_t place = 0;  ///< where it was last, for when it is gone
  std::uint8_t order = 0;
};

struct Ui {
  Page page = Page::kOverview;
  std::vector<Page> before;  ///< where Back leads
  std::size_t panel = 0;     ///< of the overview, as List
  std::array<Choice, kLists> choices;
  std::string node;                          ///< that the node page shows
  std::int64_t layer = 0;                    ///< that the layer page shows
  std::uint64_t request = 0;                 ///< that the request page shows
  std::optional<RequestFacts> request_seen;  ///< what was last said of it
  std::optional<Command> question;           ///< waits for y or n
  std::string note;                          ///< what became of the last command
  int page_rows = 10;                        ///< for PageUp and PageDown

  // What the terminal and the link know.
  Glyphs glyphs;
  int utc_offset_s = 0;
  double now_unix_s = 0;
  bool connected = false;
  double silent_s = 0;   ///< since the last status
  std::string link_why;  ///< why there is none
  MoveLog moves;

  Choice& choice(List list) { return choices[static_cast<std::size_t>(list)]; }
  const Choice& choice(List list) const { return choices[static_cast<std::size_t>(list)]; }
};

/// The names of a list's rows, in the order in which they are shown.
std::vector<std::string> rows_of(List list, const Facts& facts, const Ui& ui);
/// Where the chosen row is; 0 in an empty list. Before a choice it is the first, of the nodes the
/// first that lives.
std::size_t chosen(List list, const Facts& facts, const Ui& ui);
/// Empty if there is none.
std::string chosen_node(const Facts& facts, const Ui& ui);
/// How a list can be sorted: what to call it. The first is how it begins.
std::vector<std::string_view> orders(List list);
/// The list that the keys move in.
std::optional<List> active_list(const Ui& ui);

// Sorted as the list is.
std::vector<const NodeFacts*> sorted_nodes(const Facts& facts, const Ui& ui);
std::vector<const ReplicaFacts*> sorted_replicas(const Facts& facts, const Ui& ui);
std::vector<const RequestFacts*> sorted_requests(const Facts& facts, const Ui& ui);
/// Expert numbers of a layer.
std::vector<std::int32_t> sorted_experts(const LayerFacts& layer, std::int32_t experts,
                                         const Ui& ui);

/// `facts` is null before the first status.
Command on_key(Ui& ui, const Facts* facts, Key key);

}  // namespace troupe::console
