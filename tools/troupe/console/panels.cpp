#include <algorithm>

#include "tools/troupe/console/fitting.h"
#include "tools/troupe/console/format.h"
#include "tools/troupe/console/view.h"

/// The lists: nodes, replicas, requests, events.
namespace troupe::console {
namespace {

/// Marks the row that the keys speak of.
void mark_chosen(const Area& area, int y, bool active) {
  if (active) area.paint(y, Style::kSelected);
}

/// "99.9k+99.9k/99.9k"
constexpr int kKvColumns = 17;

double share(double used, double total) { return total > 0 ? used / total : 0; }

/// The columns of the list of nodes and their widths, for a width of the whole; 0: left out.
struct NodeColumns {
  int id = 9, host = 0, seen = 0, kind = 0, bar = 0, memory = 5;
  explicit NodeColumns(int width) {
    if (width < 44) {
      id = 8;
      return;
    }
    memory = 11;  // both numbers, not only the share
    if (width >= 60) {
      seen = 5;
      kind = 7;
    }
    // 80 columns take these; what is more goes to the bars and the names.
    if (width >= 80) host = 11 + std::min((width - 80) / 4, 20);
    bar = std::min((width - loads() - 1 - kind - 8 - memory) / 2, 32);
  }
  /// Where the device begins.
  int loads() const { return 1 + id + 1 + host + 9 + seen + (bar > 0 ? 1 : 0); }
};

struct Load {
  std::string kind;
  double utilization = 0;
  std::uint64_t memory_used = 0, memory_total = 0;
  Style style = Style::kPlain;
};

void draw_load(const Area& area, int y, const Load& load, const NodeColumns& columns,
               const Glyphs& glyphs) {
  int x = columns.loads();
  if (columns.kind > 0) x = area.put_left(x, y, columns.kind - 1, load.kind, load.style) + 1;
  // Work is good: a busy device is no trouble, one without memory is.
  x = put_bar(area, x, y, columns.bar, load.utilization, Style::kGood, glyphs);
  x = area.put_right(x, y, 5, percent(load.utilization));
  const double used =
      share(static_cast<double>(load.memory_used), static_cast<double>(load.memory_total));
  if (columns.bar == 0) {
    // The share alone.
    area.put_right(x, y, columns.memory, percent(used), share_style(used));
    return;
  }
  x = put_bar(area, x + 1, y, columns.bar, used, share_style(used), glyphs) + 1;
  area.put(x, y, short_bytes(load.memory_used) + "/" + short_bytes(load.memory_total));
}

void draw_node_row(const Area& area, int y, const NodeFacts& node, const NodeColumns& columns) {
  int x = area.put_left(1, y, columns.id, node.id) + 1;
  if (columns.host > 0) x = area.put_left(x, y, columns.host - 1, node.host) + 1;
  const bool loading = node.load_total > node.load_done && node.state != "lost";
  const std::string state = loading ? "load " + percent(share(static_cast<double>(node.load_done),
                                                              static_cast<double>(node.load_total)))
                                    : node.state;
  x = area.put_left(x, y, 9, state, state_style(loading ? "loading" : node.state));
  if (columns.seen > 0 && node.state != "lost")
    area.put_right(x, y, columns.seen, short_time(double(node.last_seen_ms) / 1e3));
}

/// It computes nothing: where it listens stands in place of a load.
void draw_standby_row(const Area& area, int y, const StandbyFacts& standby,
                      const NodeColumns& columns) {
  area.put_left(1, y, columns.id, "standby");
  area.put_left(2 + columns.id + columns.host, y, 9, standby.state, state_style(standby.state));
  const int x = columns.loads() - columns.seen;
  area.put_left(x, y, area.width() - x, standby.address, Style::kDim);
}

Load load_of(const DeviceFacts& device) {
  const bool failed = !device.failed.empty();
  return {failed        ? "failed"
          : device.slow ? "slow"
                        : device.kind,
          device.utilization, device.memory_used, device.memory_total,
          failed        ? Style::kBad
          : device.slow ? Style::kWarning
                        : Style::kPlain};
}
Load load_of(const NodeFacts& node) {
  if (node.devices.size() == 1) return load_of(node.devices[0]);
  Load load{std::to_string(node.devices.size()) + " dev", node.utilization(), node.memory_used(),
            node.memory_total()};
  for (const auto& device : node.devices)
    if (!device.failed.empty() || (device.slow && load.style == Style::kPlain))
      load.style = load_of(device).style;
  return load;
}

/// Time, kind and text of an event stand below those of the others; where that leaves the text too
/// little, it stands in rows of its own.
struct EventColumns {
  int text = 3, above = 1;
  EventColumns(int width, const std::vector<EventFacts>& events) {
    if (width < 50) return;
    int kind = 0;
    for (const auto& event : events) kind = std::max(kind, columns_of(event.kind));
    text = 10 + std::min(kind, 16) + 2;
    above = 0;
  }
};
constexpr std::size_t kEventRowsMax = 6;

}  // namespace

void draw_nodes(const Area& area, const Facts& facts, Ui& ui, bool active) {
  const auto nodes = sorted_nodes(facts, ui);
  std::size_t devices = 0;
  for (const auto* node : nodes) devices += std::max<std::size_t>(1, node->devices.size());
  const NodeColumns columns(area.width());
  const Area panel =
      draw_heading(area, ui, "nodes", {std::to_string(nodes.size())}, List::kNodes, active);
  const bool has_standby =
      !facts.standby.address.empty() && static_cast<std::size_t>(panel.height()) > nodes.size();
  const Area rows = panel.rows(0, panel.height() - (has_standby ? 1 : 0));
  const int loads = columns.loads(), bars = loads + columns.kind - 1;
  area.put(bars, 0, " load ", Style::kDim);
  area.put(bars + columns.bar + 6, 0, columns.bar > 0 ? " memory " : "mem", Style::kDim);
  // A row a device where there is room, else a row a node.
  const bool by_device = devices <= static_cast<std::size_t>(rows.height());
  const std::size_t at = chosen(List::kNodes, facts, ui);
  const std::size_t first = by_device ? 0 : first_in_sight(at, nodes.size(), rows.height());
  int y = 0;
  for (std::size_t i = first; i < nodes.size() && y < rows.height(); ++i) {
    const NodeFacts& node = *nodes[i];
    draw_node_row(rows, y, node, columns);
    const int top = y;
    if (node.state == "lost") {
      const int x = loads - columns.seen;
      rows.put_left(x, y++, rows.width() - x, node.lost_reason, Style::kDim);
    } else if (!by_device || node.devices.empty()) {
      if (!node.devices.empty()) draw_load(rows, y, load_of(node), columns, ui.glyphs);
      ++y;
    } else {
      for (const auto& device : node.devices)
        draw_load(rows, y++, load_of(device), columns, ui.glyphs);
    }
    if (i == at) mark_chosen(rows, top, active);
  }
  if (nodes.empty()) rows.put(1, y++, "none has joined yet", Style::kDim);
  if (has_standby) draw_standby_row(panel, y, facts.standby, columns);
}

void draw_replicas(const Area& area, const Facts& facts, Ui& ui, bool active) {
  const auto replicas = sorted_replicas(facts, ui);
  const Area rows = draw_heading(area, ui, "replicas", {std::to_string(replicas.size())},
                                 List::kReplicas, active);
  const std::size_t at = chosen(List::kReplicas, facts, ui);
  const std::size_t first = first_in_sight(at, replicas.size(), rows.height());
  const int bar = area.width() < 80 ? 0 : 8 + std::min((area.width() - 80) / 4, 16);
  const int layers_at = 1 + 6 + 8 + 8 + 10 + (bar > 0 ? 3 + bar + 1 + kKvColumns + 1 : 0);
  area.put(layers_at - 1, 0, " layers ", Style::kDim);
  for (std::size_t i = first; i < replicas.size(); ++i) {
    const int y = static_cast<int>(i - first);
    const ReplicaFacts& replica = *replicas[i];
    int x = rows.put_left(1, y, 5, replica.id) + 1;
    x = rows.put_left(x, y, 8, replica.state, state_style(replica.state));
    x = rows.put_right(x, y, 4, std::to_string(replica.running));
    x = rows.put(x, y, " run");
    x = rows.put_right(x, y, 4, std::to_string(replica.waiting));
    x = rows.put(x, y, " wait  ");
    if (bar > 0) x = rows.put(x, y, "KV ");
    const double used =
        share(static_cast<double>(replica.kv_used), static_cast<double>(replica.kv_total));
    if (bar > 0) {
      x = put_bar(rows, x, y, bar, used, share_style(used), ui.glyphs) + 1;
      x = rows.put_left(x, y, kKvColumns, kv_short(replica)) + 1;
    }
    std::vector<std::string> shards;
    for (const auto& shard : replica.shards) shards.push_back(shard_text(shard));
    const std::string where = some_fitting(shards, rows.width() - layers_at);
    // Half a place is none; the least screens have no room for it.
    if (layers_at + columns_of(where) <= rows.width()) rows.put(layers_at, y, where);
    if (i == at) mark_chosen(rows, y, active);
  }
  if (replicas.empty()) rows.put(1, 0, "none", Style::kDim);
}

void draw_events(const Area& area, const Facts& facts, Ui& ui, bool active) {
  const Area rows = draw_heading(area, ui, "events", {}, std::nullopt, active);
  const auto& events = facts.events;
  if (events.empty()) return;
  // Choices count from the newest; rows run from the oldest in sight down to it.
  const std::size_t back = chosen(List::kEvents, facts, ui);
  const std::size_t at = events.size() - 1 - back;
  const EventColumns columns(rows.width(), events);
  const auto lines = [&](std::size_t i) {
    return broken(events[i].text, rows.width() - columns.text, kEventRowsMax);
  };
  // From the oldest of which, with all newer ones, every line has room.
  std::size_t first = events.size();
  for (int room = rows.height(); first > 0; --first) {
    room -= columns.above + static_cast<int>(lines(first - 1).size());
    if (room < 0) break;
  }
  first = std::min({first, at, events.size() - 1});
  for (int y = 0; first < events.size() && y < rows.height(); ++first) {
    const EventFacts& event = events[first];
    const int x = rows.put(1, y, clock_time(event.time_unix_s, ui.utc_offset_s), Style::kDim) + 1;
    const bool loss = event.kind.find("lost") != std::string::npos ||
                      event.kind.find("fail") != std::string::npos;
    rows.put_left(x, y, std::min(columns_of(event.kind), 16), event.kind,
                  loss ? Style::kBad : Style::kStrong);
    const int top = y;
    y += columns.above;
    for (const auto& line : lines(first))
      rows.put_left(columns.text, y++, rows.width() - columns.text, line);
    if (first == at) mark_chosen(rows, top, active && back > 0);
  }
}

void draw_requests(const Area& area, const Facts& facts, Ui& ui, bool active) {
  const auto requests = sorted_requests(facts, ui);
  const auto all =
      static_cast<std::size_t>(std::max<std::int64_t>(0, facts.running + facts.waiting));
  std::string more = std::to_string(requests.size());
  if (all > requests.size()) more += " of " + std::to_string(all) + ", the oldest";
  const Area page = draw_heading(area, ui, "requests", {more}, List::kRequests, active);
  if (requests.empty()) {
    page.put(1, 0, "none is running or waiting", Style::kDim);
    return;
  }
  page.put(1, 0, "        id  state     replica    prompt    tokens      age  tokens/s  replays",
           Style::kDim);
  const Area rows = page.rows(1, page.height() - 1);
  const std::size_t at = chosen(List::kRequests, facts, ui);
  const std::size_t first = first_in_sight(at, requests.size(), rows.height());
  for (std::size_t i = first; i < requests.size(); ++i) {
    const int y = static_cast<int>(i - first);
    const RequestFacts& request = *requests[i];
    int x = rows.put_right(1, y, 10, std::to_string(request.id)) + 2;
    x = rows.put_left(x, y, 8, request.state, state_style(request.state)) + 1;
    x = rows.put_right(x, y, 8, request.replica ? std::to_string(*request.replica) : "-");
    x = rows.put_right(x, y, 10, std::to_string(request.prompt_tokens));
    x = rows.put_right(x, y, 10, std::to_string(request.tokens));
    x = rows.put_right(x, y, 9, short_time(request.age_s));
    x = rows.put_right(x, y, 10, short_number(share(double(request.tokens), request.age_s)));
    rows.put_right(x, y, 9, std::to_string(request.replays),
                   request.replays > 0 ? Style::kWarning : Style::kPlain);
    if (i == at) mark_chosen(rows, y, active);
  }
}

}  // namespace troupe::console
