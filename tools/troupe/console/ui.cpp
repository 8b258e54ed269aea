#include "tools/troupe/console/ui.h"

#include <algorithm>
#include <charconv>
#include <numeric>

namespace troupe::console {
namespace {

/// "node-2" before "node-10": by the number that a name ends with.
bool natural_less(std::string_view a, std::string_view b) {
  const auto split = [](std::string_view s) {
    const std::size_t digits = s.find_last_not_of("0123456789");
    const std::string_view tail = digits == s.npos ? s : s.substr(digits + 1);
    std::uint64_t number = 0;
    std::from_chars(tail.data(), tail.data() + tail.size(), number);
    return std::pair(s.substr(0, s.size() - tail.size()), number);
  };
  const auto x = split(a), y = split(b);
  return x != y ? x < y : a < b;
}

template <class T>
std::vector<const T*> pointers(const std::vector<T>& all) {
  std::vector<const T*> out;
  for (const T& one : all) out.push_back(&one);
  return out;
}

/// Sorts by `key`, the largest first; equal ones stay as they are.
template <class T, class KeyOf>
void largest_first(std::vector<T>& rows, KeyOf key) {
  std::stable_sort(rows.begin(), rows.end(),
                   [&](const T& a, const T& b) { return key(a) > key(b); });
}

double memory_share(const NodeFacts& node) {
  const double total = static_cast<double>(node.memory_total());
  return total > 0 ? static_cast<double>(node.memory_used()) / total : 0;
}

void go(Ui& ui, Page page) {
  if (ui.page == page) return;
  ui.before.push_back(ui.page);
  ui.page = page;
}

void go_back(Ui& ui) {
  if (ui.before.empty()) return;
  ui.page = ui.before.back();
  ui.before.pop_back();
}

void toggle(Ui& ui, Page page) {
  if (ui.page == page) {
    go_back(ui);
  } else {
    go(ui, page);
  }
}

template <class Number>
Number number_of(const std::string& text) {
  Number number{};
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

/// Enter: looks at the chosen row.
void look(Ui& ui, const Facts& facts, List list) {
  const auto rows = rows_of(list, facts, ui);
  if (rows.empty()) return;
  const std::string& row = rows[chosen(list, facts, ui)];
  switch (list) {
    case List::kNodes:
      ui.node = row;
      return go(ui, Page::kNode);
    case List::kReplicas:
      for (const auto& replica : facts.replicas)
        if (replica.id == row && !replica.shards.empty())
          ui.node = replica.shards[0].device.substr(0, replica.shards[0].device.rfind('/'));
      return go(ui, Page::kNode);
    case List::kLayers:
      ui.layer = number_of<std::int64_t>(row);
      ui.choice(List::kExperts) = {"", 0, ui.choice(List::kExperts).order};
      return go(ui, Page::kLayer);
    case List::kRequests:
      ui.request = number_of<std::uint64_t>(row);
      return go(ui, Page::kRequest);
    case List::kEvents:
      return go(ui, Page::kEvents);
    case List::kExperts:
      return;
  }
}

void move_choice(Ui& ui, const Facts& facts, List list, char32_t key) {
  const auto rows = rows_of(list, facts, ui);
  if (rows.empty()) return;
  const auto last = static_cast<std::ptrdiff_t>(rows.size()) - 1;
  auto at = static_cast<std::ptrdiff_t>(chosen(list, facts, ui));
  switch (key) {
    case Key::kUp:
      at -= 1;
      break;
    case Key::kDown:
      at += 1;
      break;
    case Key::kPageUp:
      at -= ui.page_rows;
      break;
    case Key::kPageDown:
      at += ui.page_rows;
      break;
    case Key::kHome:
      at = 0;
      break;
    default:
      at = last;
  }
  at = std::clamp<std::ptrdiff_t>(at, 0, last);
  Choice& choice = ui.choice(list);
  choice.place = static_cast<std::size_t>(at);
  choice.row = rows[choice.place];
}

Command answer(Ui& ui, char32_t key) {
  const Command asked = *ui.question;
  ui.question.reset();
  if (key == U'y' || key == U'Y') return asked;
  ui.note = "Not done.";
  return {};
}

/// The node that `d` speaks of: the one that is looked at, or chosen.
std::string node_in_sight(const Ui& ui, const Facts& facts) {
  if (ui.page == Page::kNode) return ui.node;
  if (ui.page != Page::kOverview || ui.panel != static_cast<std::size_t>(List::kNodes)) return "";
  return chosen_node(facts, ui);
}

void ask_drain(Ui& ui, const Facts& facts) {
  const std::string node = node_in_sight(ui, facts);
  if (facts.find_node(node)) {
    ui.question = Command{Command::Kind::kDrain, node};
  } else {
    ui.note = "Choose a node first: Tab to the nodes, then up and down.";
  }
}

void other_panel(Ui& ui, std::size_t step) {
  if (ui.page == Page::kOverview) ui.panel = (ui.panel + step) % kPanels;
}

}  // namespace

std::vector<std::string_view> orders(List list) {
  switch (list) {
    case List::kNodes:
      return {"id", "load", "memory", "state"};
    case List::kReplicas:
      return {"id", "running", "waiting", "KV use"};
    case List::kRequests:
      return {"age", "tokens", "state", "replays"};
    case List::kExperts:
      return {"load", "number", "copies"};
    case List::kLayers:
    case List::kEvents:
      break;
  }
  return {};
}

std::vector<const NodeFacts*> sorted_nodes(const Facts& facts, const Ui& ui) {
  auto rows = pointers(facts.nodes);
  std::stable_sort(rows.begin(), rows.end(),
                   [](auto* a, auto* b) { return natural_less(a->id, b->id); });
  const int order = ui.choice(List::kNodes).order;
  if (order == 1) largest_first(rows, [](auto* n) { return n->utilization(); });
  if (order == 2) largest_first(rows, [](auto* n) { return memory_share(*n); });
  if (order == 3)
    std::stable_sort(rows.begin(), rows.end(),
                     [](auto* a, auto* b) { return a->state < b->state; });
  return rows;
}

std::vector<const ReplicaFacts*> sorted_replicas(const Facts& facts, const Ui& ui) {
  auto rows = pointers(facts.replicas);
  std::stable_sort(rows.begin(), rows.end(),
                   [](auto* a, auto* b) { return natural_less(a->id, b->id); });
  const int order = ui.choice(List::kReplicas).order;
  if (order == 1) largest_first(rows, [](auto* r) { return r->running; });
  if (order == 2) largest_first(rows, [](auto* r) { return r->waiting; });
  if (order == 3)
    largest_first(rows, [](auto* r) {
      return r->kv_total > 0 ? static_cast<double>(r->kv_used) / static_cast<double>(r->kv_total)
                             : 0.0;
    });
  return rows;
}

std::vector<const RequestFacts*> sorted_requests(const Facts& facts, const Ui& ui) {
  auto rows = pointers(facts.requests);
  const int order = ui.choice(List::kRequests).order;
  largest_first(rows, [](auto* r) { return r->age_s; });
  if (order == 1) largest_first(rows, [](auto* r) { return r->tokens; });
  if (order == 2)
    std::stable_sort(rows.begin(), rows.end(),
                     [](auto* a, auto* b) { return a->state < b->state; });
  if (order == 3) largest_first(rows, [](auto* r) { return r->replays; });
  return rows;
}

std::vector<std::int32_t> sorted_experts(const LayerFacts& layer, std::int32_t experts,
                                         const Ui& ui) {
  std::vector<std::int32_t> rows(static_cast<std::size_t>(experts));
  std::iota(rows.begin(), rows.end(), 0);
  const int order = ui.choice(List::kExperts).order;
  if (order == 0 && !layer.tokens.empty())
    largest_first(rows, [&](auto e) { return layer.tokens[static_cast<std::size_t>(e)]; });
  if (order == 2) largest_first(rows, [&](auto e) { return layer.copies(e); });
  return rows;
}

std::vector<std::string> rows_of(List list, const Facts& facts, const Ui& ui) {
  std::vector<std::string> rows;
  switch (list) {
    case List::kNodes:
      for (const auto* node : sorted_nodes(facts, ui)) rows.push_back(node->id);
      break;
    case List::kReplicas:
      for (const auto* replica : sorted_replicas(facts, ui)) rows.push_back(replica->id);
      break;
    case List::kLayers:
      for (const auto& layer : facts.experts.layers) rows.push_back(std::to_string(layer.layer));
      break;
    case List::kEvents:  // The newest first: an empty choice is the newest.
      for (std::size_t i = facts.events.size(); i-- > 0;) {
        const EventFacts& event = facts.events[i];
        rows.push_back(std::to_string(event.time_unix_s) + event.kind + event.text);
      }
      break;
    case List::kRequests:
      for (const auto* request : sorted_requests(facts, ui))
        rows.push_back(std::to_string(request->id));
      break;
    case List::kExperts:
      if (const LayerFacts* layer = facts.experts.find(ui.layer))
        for (const auto expert : sorted_experts(*layer, facts.experts.experts, ui))
          rows.push_back(std::to_string(expert));
      break;
  }
  return rows;
}

std::size_t chosen(List list, const Facts& facts, const Ui& ui) {
  const Choice& choice = ui.choice(list);
  const auto rows = rows_of(list, facts, ui);
  if (rows.empty()) return 0;
  if (choice.row.empty()) {
    if (list != List::kNodes) return 0;
    const auto nodes = sorted_nodes(facts, ui);
    const auto living =
        std::find_if(nodes.begin(), nodes.end(), [](auto* n) { return n->state != "lost"; });
    return living == nodes.end() ? 0 : static_cast<std::size_t>(living - nodes.begin());
  }
  const auto found = std::find(rows.begin(), rows.end(), choice.row);
  if (found != rows.end()) return static_cast<std::size_t>(found - rows.begin());
  return std::min(choice.place, rows.size() - 1);
}

std::string chosen_node(const Facts& facts, const Ui& ui) {
  const auto nodes = sorted_nodes(facts, ui);
  return nodes.empty() ? "" : nodes[chosen(List::kNodes, facts, ui)]->id;
}

std::optional<List> active_list(const Ui& ui) {
  switch (ui.page) {
    case Page::kOverview:
      return static_cast<List>(ui.panel);
    case Page::kMap:
      return List::kLayers;
    case Page::kRequests:
      return List::kRequests;
    case Page::kEvents:
      return List::kEvents;
    case Page::kLayer:
      return List::kExperts;
    case Page::kNode:
    case Page::kRequest:
    case Page::kHelp:
      break;
  }
  return std::nullopt;
}

Command on_key(Ui& ui, const Facts* facts, Key key) {
  if (key.code == Key::kRedraw) return {};
  if (ui.question) return answer(ui, key.code);
  ui.note.clear();
  const auto list = active_list(ui);
  if (key.code >= Key::kUp && key.code <= Key::kEnd) {
    if (facts && list) move_choice(ui, *facts, *list, key.code);
    return {};
  }
  switch (key.code) {
    case U'q':
    case U'Q':
      return {Command::Kind::kQuit, ""};
    case U'j':
    case U'k':
      if (facts && list) move_choice(ui, *facts, *list, key.code == U'j' ? Key::kDown : Key::kUp);
      break;
    case Key::kEnter:
      if (facts && list) look(ui, *facts, *list);
      break;
    case Key::kBack:
      go_back(ui);
      break;
    case Key::kNext:
      other_panel(ui, 1);
      break;
    case Key::kPrevious:
      other_panel(ui, kPanels - 1);
      break;
    case U's':
      if (list && !orders(*list).empty())
        ui.choice(*list).order =
            static_cast<std::uint8_t>((ui.choice(*list).order + 1u) % orders(*list).size());
      break;
    case U'o':
      ui.page = Page::kOverview;
      ui.before.clear();
      break;
    case U'm':
      toggle(ui, Page::kMap);
      break;
    case U'r':
      toggle(ui, Page::kRequests);
      break;
    case U'e':
      toggle(ui, Page::kEvents);
      break;
    case U'?':
    case U'h':
      toggle(ui, Page::kHelp);
      break;
    case U'd':
      if (facts) ask_drain(ui, *facts);
      break;
    case U'b':
      if (facts) ui.question = Command{Command::Kind::kRebalance, ""};
      break;
    default:
      break;
  }
  return {};
}

}  // namespace troupe::console
