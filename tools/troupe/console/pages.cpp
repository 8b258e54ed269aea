#include <algorithm>
#include <numeric>

#include "tools/troupe/console/fitting.h"
#include "tools/troupe/console/format.h"
#include "tools/troupe/console/view.h"

/// One node, one layer, one request, and the help.
namespace troupe::console {
namespace {

constexpr int kName = 14;  // columns of the names of facts

/// Name and value, a line each, as far as there is room.
class Sheet {
 public:
  explicit Sheet(const Area& area) : area_(area) {}
  void fact(std::string_view name, std::string_view value, Style style = Style::kPlain) {
    if (value.empty()) return;
    area_.put_left(1, y_, kName - 1, name, Style::kDim);
    area_.put_left(kName, y_++, area_.width() - kName, value, style);
  }
  int& y() { return y_; }

 private:
  const Area& area_;
  int y_ = 0;
};

bool on_node(std::string_view device, std::string_view node) {
  return device.substr(0, device.rfind('/')) == node;
}

std::string what_its_loss_means(const Facts& facts, const std::string& node) {
  const auto in = [&](const auto& nodes) {
    return std::find(nodes.begin(), nodes.end(), node) != nodes.end();
  };
  if (in(facts.survives.at_once)) return "survived at once";
  if (in(facts.survives.with_reload)) return "survived, once experts are loaded again";
  return in(facts.survives.not_at_all) ? "not survived: the rest has no room for its part" : "";
}

void draw_devices(const Area& area, Sheet& sheet, const NodeFacts& node, const Ui& ui) {
  for (const auto& device : node.devices) {
    int x = area.put_left(1, sheet.y(), kName - 1, device.id, Style::kDim);
    x = area.put_left(kName, sheet.y(), 5, device.kind) + 1;
    x = put_bar(area, x, sheet.y(), 16, device.utilization, Style::kGood, ui.glyphs);
    x = area.put_right(x, sheet.y(), 5, percent(device.utilization)) + 2;
    const double used = device.memory_total > 0 ? static_cast<double>(device.memory_used) /
                                                      static_cast<double>(device.memory_total)
                                                : 0;
    x = put_bar(area, x, sheet.y(), 12, used, share_style(used), ui.glyphs) + 1;
    x = area.put(x, sheet.y(),
                 short_bytes(device.memory_used) + "/" + short_bytes(device.memory_total)) +
        1;
    if (device.slow) x = area.put(x, sheet.y(), "slow ", Style::kWarning);
    ++sheet.y();
    sheet.fact(" failed", device.failed, Style::kBad);
    sheet.fact(" is", device.about(), device.troubled() ? Style::kWarning : Style::kDim);
  }
}

void draw_experts_of(Sheet& sheet, const Facts& facts, const NodeFacts& node) {
  for (const auto& layer : facts.experts.layers) {
    std::vector<int> here;
    for (const auto& slot : layer.slots)
      if (on_node(facts.experts.devices[slot.device], node.id)) here.push_back(slot.expert);
    here.erase(std::unique(here.begin(), here.end()), here.end());
    if (!here.empty())
      sheet.fact("experts L" + std::to_string(layer.layer),
                 std::to_string(here.size()) + ": " + ranges(here));
  }
}

}  // namespace

void draw_node(const Area& area, const Facts& facts, const Ui& ui, const std::string& name,
               bool active) {
  const Area page = draw_heading(area, ui, name, {}, std::nullopt, active);
  const NodeFacts* node = facts.find_node(name);
  if (!node) {
    page.put(1, 0, "It is no longer a member of the cluster.", Style::kWarning);
    return;
  }
  Sheet sheet(page);
  sheet.fact("state", node->state, state_style(node->state));
  sheet.fact("lost because", node->lost_reason, Style::kBad);
  sheet.fact("where", node->host + ", process " + std::to_string(node->pid) + ", " + node->role +
                          ", version " + node->version + ", incarnation " +
                          std::to_string(node->incarnation));
  sheet.fact("last seen", short_time(static_cast<double>(node->last_seen_ms) / 1e3) + " ago");
  sheet.fact("bulk lane", node->fabric);
  sheet.fact("its loss is", what_its_loss_means(facts, node->id));
  if (node->load_total > 0)
    sheet.fact("weights", short_bytes(node->load_done) + " of " + short_bytes(node->load_total));
  draw_devices(page, sheet, *node, ui);
  for (const auto& replica : facts.replicas)
    for (const auto& shard : replica.shards)
      if (on_node(shard.device, node->id))
        sheet.fact("replica " + replica.id, "layers " + shard_text(shard) + ", " + replica.state +
                                                ", " + std::to_string(replica.running) +
                                                " running, " + std::to_string(replica.waiting) +
                                                " waiting");
  draw_experts_of(sheet, facts, *node);
}

void draw_layer_page(const Area& area, const Facts& facts, Ui& ui) {
  const LayerFacts* layer = facts.experts.find(ui.layer);
  const std::string name = "layer " + std::to_string(ui.layer);
  const Area page =
      draw_heading(area, ui, name, {layer ? std::to_string(layer->slots.size()) + " copies" : ""},
                   List::kExperts, true);
  if (!layer) {
    page.put(1, 0, "It has no experts now.", Style::kWarning);
    return;
  }
  const auto experts = sorted_experts(*layer, facts.experts.experts, ui);
  const double all = std::accumulate(layer->tokens.begin(), layer->tokens.end(), 0.0);
  const double most =
      layer->tokens.empty() ? 0 : *std::max_element(layer->tokens.begin(), layer->tokens.end());
  page.put(1, 0, "expert    tokens  share                    copies on", Style::kDim);
  const Area rows = page.rows(1, page.height() - 1);
  const std::size_t at = chosen(List::kExperts, facts, ui);
  const std::size_t first = first_in_sight(at, experts.size(), rows.height());
  const auto moved = ui.moves.moved(layer->layer, facts.experts.experts);
  for (std::size_t i = first; i < experts.size(); ++i) {
    const int y = static_cast<int>(i - first);
    if (y >= rows.height()) break;
    const std::int32_t expert = experts[i];
    const auto e = static_cast<std::size_t>(expert);
    const bool measured = e < layer->tokens.size();
    const double tokens = measured ? layer->tokens[e] : 0;
    const Style style = moved[e] ? Style::kMoved : Style::kPlain;
    int x = rows.put_right(1, y, 6, std::to_string(expert), style);
    x = rows.put_right(x, y, 10, measured ? short_number(tokens) : "-", style);
    x = rows.put_right(x, y, 6, all > 0 ? percent(tokens / all) : "-", style) + 1;
    const int level = measured ? heat_level(tokens, all / double(experts.size())) : 1;
    x = put_bar(rows, x, y, 16, most > 0 ? tokens / most : 0, heat(level), ui.glyphs) + 1;
    std::vector<std::string> devices;
    for (const auto& slot : layer->slots)
      if (slot.expert == expert) devices.push_back(facts.experts.devices[slot.device]);
    if (devices.empty()) {
      rows.put(x, y, "nowhere", Style::kBad);
    } else {
      rows.put_left(x, y, rows.width() - x,
                    std::to_string(devices.size()) + "  " + some_of(devices, devices.size()),
                    style);
    }
    if (i == at) rows.paint(y, Style::kSelected);
  }
}

void draw_request_page(const Area& area, const Facts& facts, Ui& ui) {
  const Area page =
      draw_heading(area, ui, "request " + std::to_string(ui.request), {}, std::nullopt, true);
  const RequestFacts* request = facts.find_request(ui.request);
  Sheet sheet(page);
  if (request) {
    ui.request_seen = *request;
    sheet.fact("state", request->state, state_style(request->state));
  } else {
    sheet.fact("state", "over, or no longer among the requests that the head lists");
    if (!ui.request_seen || ui.request_seen->id != ui.request) return;
    request = &*ui.request_seen;
  }
  sheet.fact("age", short_time(request->age_s));
  sheet.fact("prompt", std::to_string(request->prompt_tokens) + " tokens");
  sheet.fact("answer", std::to_string(request->tokens) + " tokens so far, " +
                           short_number(request->age_s > 0
                                            ? static_cast<double>(request->tokens) / request->age_s
                                            : 0) +
                           " a second since it came");
  sheet.fact("replays",
             request->replays == 0
                 ? "none"
                 : std::to_string(request->replays) + ", each went on where it stood",
             request->replays > 0 ? Style::kWarning : Style::kPlain);
  if (!request->replica) return sheet.fact("replica", "waits for one", Style::kWarning);
  sheet.fact("replica", std::to_string(*request->replica));
  for (const auto& replica : facts.replicas)
    if (replica.id == std::to_string(*request->replica))
      for (const auto& shard : replica.shards) sheet.fact("", "layers " + shard_text(shard));
}

void draw_help(const Area& area) {
  struct Entry {
    std::string_view keys, text;
  };
  constexpr Entry kEntries[] = {
      {"Tab, Shift-Tab", "the next panel: nodes, replicas, experts, events"},
      {"Up Down PgUp PgDn", "choose a row (also k and j, Home and End)"},
      {"Enter", "look at the chosen node, layer or request"},
      {"Backspace, Esc", "back"},
      {"o", "the overview"},
      {"s", "sort the list another way"},
      {"m", "the expert map on the whole screen"},
      {"r, e", "the requests; the event log"},
      {"d", "drain the chosen node: its copies move, then it leaves (asks)"},
      {"b", "rebalance: move experts now, so that the load is even (asks)"},
      {"q", "quit; the cluster does not notice"},
      {"", ""},
      {"the map",
       "a row a layer, a column an expert; the denser a tile, the larger its share of "
       "the layer's load"},
      {"",
       "a digit, or a line below: so many copies; X: placed nowhere; what moved in the last 8 "
       "seconds stands out"},
      {"a node's load", "the share of its time that it spends computing"},
      {"KV", "blocks of the cache: those that sequences use + prefixes that are kept / all"},
      {"parts proven", "weights that were read again and are what they were"},
  };
  const bool narrow = area.width() < 50;  // the keys then have a row of their own
  const int text_at = narrow ? 3 : 19;
  int y = 0;
  for (const auto& [keys, text] : kEntries) {
    const auto rows = broken(text, area.width() - text_at - 1, 9);
    if (y + static_cast<int>(rows.size()) > area.height()) return;
    area.put(1, y, keys, Style::kStrong);
    if (narrow && !keys.empty()) ++y;
    for (const auto& row : rows) area.put(text_at, y++, row);
  }
}

}  // namespace troupe::console
