#include "tools/troupe/console/view.h"

#include <doctest/doctest.h>

#include <set>
#include <string>
#include <tuple>

#include "tests/tools/console/sample.h"

namespace troupe::console {
namespace {

using namespace std::chrono_literals;

Ui connected() {
  Ui ui;
  ui.connected = true;
  ui.now_unix_s = 1000000100;
  return ui;
}

/// The whole screen, for looking for words.
std::string text_of(const Canvas& canvas) {
  std::string text;
  for (int y = 0; y < canvas.height(); ++y) text += canvas.row(y) + "\n";
  return text;
}

bool has(const std::string& text, std::string_view words) {
  return text.find(words) != std::string::npos;
}

/// Where a text begins.
std::pair<int, int> place_of(const Canvas& canvas, std::string_view words) {
  for (int y = 0; y < canvas.height(); ++y)
    if (const auto x = canvas.row(y).find(words); x != std::string::npos)
      return {static_cast<int>(x), y};
  FAIL("not on the screen: ", words);
  return {};
}

/// Many nodes, layers and events, as a large cluster has.
Facts large() {
  Facts facts = sample();
  for (int n = 20; n < 164; ++n) {
    NodeFacts node = facts.nodes[1];
    node.id = "node-" + std::to_string(n);
    facts.nodes.push_back(node);
  }
  for (int r = 8; r < 80; ++r) {
    facts.replicas.push_back(facts.replicas[0]);
    facts.replicas.back().id = std::to_string(r);
  }
  facts.experts.experts = 256;
  facts.experts.layers.clear();
  for (int l = 3; l < 61; ++l) {
    LayerFacts layer;
    layer.layer = l;
    for (int e = 0; e < 256; ++e) layer.slots.push_back({e, 0});
    layer.tokens.assign(256, 100);
    facts.experts.layers.push_back(layer);
  }
  for (int e = 0; e < 300; ++e) facts.events.push_back({1e9 + 100 + e, "kind", "many"});
  return facts;
}

}  // namespace

TEST_CASE("the overview fits 80 by 24 and shows everything") {
  const Facts facts = sample();
  Ui ui = connected();
  const std::string text = text_of(draw(&facts, ui, 80, 24));
  for (const char* words : {"pocket",
                            "ready",
                            "version 3",
                            "bf16",
                            "up 2m03s",
                            "01:48:20",
                            "Serving pocket",
                            "in 12.2 out 843",
                            "ms p50/p99: first token 12/40, between -",
                            "3 running, 1 waiting, 40 finished, 2 failed, 1 replayed",
                            "survives the loss of node-1, node-2 at once; node-10 with a reload",
                            "312 of 312 parts proven, the oldest 41s ago, 1 copy taken out",
                            "nodes by id",
                            "node-1 ",
                            "its lease ended",
                            "node-2 ",
                            "cuda",
                            "node-10",
                            "slow",
                            "90%",
                            "1.0G/1.0G",
                            "standby              copying   d.example:6379",
                            "replicas by id",
                            "3 run",
                            "1 wait",
                            " layers ",
                            "KV ##------ 250+740/1.0k     0-4 node-10/0",
                            "990/1.0k         0-1 node-2/0, +1",
                            "loading",
                            "experts",
                            "2 layers of 4, 5 copies",
                            "imbalance 1.25",
                            "2 moving",
                            "L1",
                            "L2",
                            "events",
                            "01:47:41",
                            "node_lost",
                            "node-1 is lost.",
                            "? help",
                            "q quit"})
    CHECK_MESSAGE(has(text, words), words, " is not in\n", text);
}

TEST_CASE("nothing is cut at 80 by 24") {
  Facts facts = sample();
  facts.model = "DeepSeek-V3-0324-of-some-team";
  facts.uptime_s = 400000;
  facts.numerics = "bf16";
  facts.prompt_tokens_per_s = facts.generation_tokens_per_s = 12345;
  facts.first_token_ms = QuantileFacts{1234, 12345};
  facts.inter_token_ms = QuantileFacts{123, 1234};
  facts.experts.moves_pending = 0;
  facts.experts.experts = 32;
  for (LayerFacts& layer : facts.experts.layers) layer.tokens.resize(32);
  facts.experts.copies = 40;
  facts.experts.last_rebalance_s = 170;
  facts.events.push_back({1000000062, "node_lost",
                          "node-1 had layers 0-4 of replica 0, 64 copies of experts, 64 of them "
                          "without another."});
  Ui ui = connected();
  for (const Page page : {Page::kOverview, Page::kEvents, Page::kMap, Page::kHelp}) {
    ui.page = page;
    const Canvas canvas = draw(&facts, ui, 80, 24);
    const std::string text = text_of(canvas);
    CHECK_MESSAGE(!has(text, "~"), text);  // how put_left shows a cut
    if (page == Page::kOverview || page == Page::kMap)
      CHECK_MESSAGE(has(text, "imbalance 1.25, balanced 2m50s ago"), text);
    if (page == Page::kOverview) CHECK_MESSAGE(has(text, "312 of 312 parts proven"), text);
    if (page == Page::kOverview || page == Page::kEvents)
      CHECK_MESSAGE(has(text, "of experts,\n                       64 of them without"), text);
    CHECK_MESSAGE(has(canvas.row(0), "DeepSeek-V3-0324-of-some-team  ready  up 4d15h"), text);
    CHECK(canvas.row(0).size() == 79);  // the time ends it
  }
  ui.page = Page::kHelp;
  const std::string help = text_of(draw(&facts, ui, 80, 24));
  for (const char* words :
       {"the next panel: nodes, replicas, experts, events", "larger its share of the layer's load",
        "stands out", "and are what they were"})
    CHECK_MESSAGE(has(help, words), words, " is not in\n", help);
}

TEST_CASE("small screens show the active panel, and what is whole") {
  const Facts facts = sample();
  Ui ui = connected();
  for (const auto& [width, height] : {std::pair(60, 15), {44, 12}, {30, 8}}) {
    for (const char* panel : {">nodes", ">replicas", ">experts", ">events"}) {
      const Canvas canvas = draw(&facts, ui, width, height);
      const std::string text = text_of(canvas);
      CHECK_MESSAGE(has(text, panel), panel, " is not in\n", text);
      CHECK_MESSAGE(has(canvas.row(0), "pocket  ready"), text);
      CHECK_MESSAGE(has(canvas.row(height - 1), "? help  q quit"), text);
      on_key(ui, &facts, {Key::kNext});
    }
  }
  const std::string text = text_of(draw(&facts, ui, 30, 8));
  CHECK_MESSAGE(has(text, "node-2   ready      85%  30%"), text);
  CHECK(has(text_of(draw(&facts, ui, 60, 15)), "node-10   ready     0.1s slow"));
  CHECK(has(text_of(draw(&facts, ui, 29, 8)), "Too small; q quits."));
}

TEST_CASE("a wide screen is filled") {
  const Facts facts = sample();
  Ui ui = connected();
  const Canvas canvas = draw(&facts, ui, 200, 50);
  int left = 0, right = 0;
  for (int y = 0; y < 50; ++y) {
    left += canvas.row(y).substr(0, 100).find_first_not_of(' ') != std::string::npos;
    right += canvas.row(y).size() > 101;
  }
  CHECK(left >= 25);
  CHECK(right >= 13);
  const std::string text = text_of(canvas);
  CHECK(has(text, "its loss is  survived at once"));  // of the chosen node
  CHECK(has(text, "requests by age"));
  on_key(ui, &facts, {Key::kDown});
  CHECK(has(text_of(draw(&facts, ui, 200, 50)), "survived, once experts are loaded again"));
}

TEST_CASE("texts of events stand below each other") {
  const Facts facts = sample();
  Ui ui = connected();
  const Canvas canvas = draw(&facts, ui, 80, 24);
  CHECK(place_of(canvas, "node-1 joined.").first == place_of(canvas, "node-1 is lost.").first);
}

TEST_CASE("every page draws at every size without leaving it") {
  const Facts small = sample(), big = large(), none;
  for (const Facts* facts : {&small, &big, &none, static_cast<const Facts*>(nullptr)}) {
    for (const Page page : {Page::kOverview, Page::kMap, Page::kRequests, Page::kEvents,
                            Page::kNode, Page::kLayer, Page::kRequest, Page::kHelp}) {
      for (const auto& [width, height] : {std::pair(0, 0),
                                          {1, 1},
                                          {39, 9},
                                          {40, 10},
                                          {79, 23},
                                          {80, 24},
                                          {132, 43},
                                          {140, 12},
                                          {200, 60},
                                          {500, 200}}) {
        Ui ui = connected();
        ui.page = page;
        ui.node = "node-2";
        ui.layer = 1;
        ui.request = 51;
        const Canvas canvas = draw(facts, ui, width, height);
        CHECK(canvas.width() == width);
        CHECK(canvas.height() == height);
        if (width >= kWidthMin && height >= kHeightMin)
          CHECK(has(text_of(canvas), facts && facts->model == "pocket" ? "pocket" : "troupe top"));
      }
    }
  }
}

TEST_CASE("a wide screen has the panels beside the map") {
  const Facts facts = sample();
  Ui ui = connected();
  const Canvas canvas = draw(&facts, ui, 200, 50);
  CHECK(place_of(canvas, "nodes by").second == place_of(canvas, "experts  2 layers").second);
  CHECK(has(text_of(canvas), "survives the loss of node-1, node-2 at once; node-10 with a reload"));
}

TEST_CASE("a large cluster is scrolled to what is chosen") {
  const Facts facts = large();
  Ui ui = connected();
  std::string text = text_of(draw(&facts, ui, 80, 24));
  CHECK(has(text, "2 dev"));  // devices are drawn together
  CHECK(has(text, "node-1 "));
  CHECK_FALSE(has(text, "node-163"));
  on_key(ui, &facts, {Key::kEnd});
  text = text_of(draw(&facts, ui, 80, 24));
  CHECK(has(text, "node-163"));
  CHECK(has(text, "4 experts a column"));
  CHECK(has(text, " L3"));
  on_key(ui, &facts, {Key::kNext});
  on_key(ui, &facts, {Key::kNext});
  on_key(ui, &facts, {Key::kEnd});
  CHECK(has(text_of(draw(&facts, ui, 80, 24)), "L60"));
  CHECK(has(text, "many"));
  on_key(ui, &facts, {U'e'});
  CHECK_FALSE(has(text_of(draw(&facts, ui, 80, 24)), "node_joined"));
  on_key(ui, &facts, {Key::kEnd});  // the oldest
  CHECK(has(text_of(draw(&facts, ui, 80, 24)), "node_joined"));
}

TEST_CASE("the map shows load, copies, losses and moves without colour") {
  Facts facts = sample();
  Ui ui = connected();
  Canvas canvas = draw(&facts, ui, 80, 24);
  auto [x, y] = place_of(canvas, "L1 ");
  x = 5;
  CHECK(canvas.at(x, y).style == heat(4));  // 900 of a mean of 250
  CHECK(canvas.at(x, y).glyph == U'*');
  CHECK(canvas.at(x, y).mark);
  CHECK(canvas.at(x + 1, y).glyph == U'2');  // copies
  CHECK(canvas.at(x + 3, y).glyph == U' ');  // nothing to do
  CHECK_FALSE(canvas.at(x + 3, y).mark);
  CHECK(canvas.at(x + 4, y).glyph == U' ');
  CHECK(canvas.at(x + 6, y).glyph == U'.');      // a fifth of the mean
  CHECK(canvas.at(x + 9, y + 1).glyph == U'X');  // expert 3 of layer 2 is nowhere
  CHECK(canvas.at(x + 9, y + 1).style == Style::kBad);

  Facts after = facts;
  after.experts.layers[0].slots[2].device = after.experts.layers[0].slots[1].device;
  ui.moves.add(facts.experts, after.experts, TimePoint{1s});
  canvas = draw(&after, ui, 80, 24);
  std::tie(std::ignore, y) = place_of(canvas, "L1 ");
  CHECK(canvas.at(x, y).style == heat(4));
  const std::string text = text_of(canvas);
  CHECK(has(text, "moved 1 just now: layer 1 expert 1 "));
  CHECK(has(text, " -> "));
  for (auto& slot : after.experts.layers[1].slots) slot.device = 1 - slot.device % 2;
  ui.moves.add(facts.experts, after.experts, TimePoint{1s});
  CHECK_FALSE(has(text_of(draw(&after, ui, 80, 24)), "~"));  // more moves than fit: whole ones

  for (auto& layer : facts.experts.layers) layer.tokens.clear();
  canvas = draw(&facts, ui = connected(), 80, 24);
  CHECK(canvas.at(x, place_of(canvas, "L1 ").second).glyph == U'o');
}

TEST_CASE("levels of the load: to half of the mean, to the mean, to 2 and 4 times, more") {
  for (const auto& [tokens, level] : {std::pair(0.0, 0),
                                      {1.0, 1},
                                      {49.0, 1},
                                      {50.0, 2},
                                      {99.0, 2},
                                      {100.0, 3},
                                      {199.0, 3},
                                      {200.0, 4},
                                      {399.0, 4},
                                      {400.0, 5},
                                      {1e9, 5}})
    CHECK(heat_level(tokens, 100) == level);
  CHECK(heat_level(5, 0) == 1);
}

TEST_CASE("levels of the load are told apart without colour, on any terminal") {
  for (const Glyphs& glyphs : {ascii_glyphs(), unicode_glyphs()}) {
    CHECK(glyphs.heat.size() == kHeatLevels);
    const std::set<char32_t> kinds(glyphs.heat.begin(), glyphs.heat.end());
    CHECK(kinds.size() == kHeatLevels);
    CHECK(kinds.count(U'X') + kinds.count(U'o') == 0);  // these mean something else
  }
}

TEST_CASE("a head that is away is said, with what was known") {
  const Facts facts = sample();
  Ui ui = connected();
  ui.connected = false;
  ui.silent_s = 12;
  ui.link_why = "Nobody answers.";
  std::string text = text_of(draw(&facts, ui, 100, 24));
  CHECK(has(text, "No answer from the head for 12s"));
  CHECK(has(text, "Nobody answers."));
  CHECK(has(text, "node-10"));
  text = text_of(draw(nullptr, ui, 100, 24));
  CHECK(has(text, "Looking for the head. Nobody answers."));
  ui.link_why = "A sentence that is longer than a row goes on in the next one, between words.";
  text = text_of(draw(nullptr, ui, 50, 24));
  CHECK(has(text, "Looking for the head. A sentence that is longer\nthan a row goes on in"));
}

TEST_CASE("the pages of one thing say what is known of it") {
  const Facts facts = sample();
  Ui ui = connected();
  struct Case {
    Page page;
    std::vector<const char*> words;
  };
  const Case cases[] = {
      {Page::kNode,
       {"node-10", "c.example, process 30", "tcp on eth0", "survived, once experts are loaded",
        "node-10/0", "10%", "slow", "replica 0", "layers 0-4", "experts L1", "2: 0,3"}},
      {Page::kLayer,
       {"layer 1", "5 copies", "900", "90%", "################", "2  node-2/0, node-10/0"}},
      {Page::kRequest,
       {"request 51", "running", "1.5s", "11 tokens", "30 tokens so far, 20", "2, each went on",
        "layers 0-4 node-10/0"}},
      {Page::kRequests, {"requests by age", "2 of 4", "51", "52", "running", "waiting"}},
      {Page::kEvents, {"node_joined", "node_lost"}},
      {Page::kHelp, {"drain", "rebalance", "quit"}},
  };
  for (const Case& c : cases) {
    ui.page = c.page;
    ui.node = "node-10";
    ui.layer = 1;
    ui.request = 51;
    const std::string text = text_of(draw(&facts, ui, 80, 24));
    for (const char* words : c.words) CHECK_MESSAGE(has(text, words), words, " is not in\n", text);
  }
  ui.page = Page::kNode;
  ui.node = "node-10";
  Facts failed = facts;
  failed.nodes[0].devices[0].failed = "a kernel threw";
  CHECK(has(text_of(draw(&failed, ui, 80, 24)), "failed      a kernel threw"));
  ui.page = Page::kOverview;
  CHECK(has(text_of(draw(&failed, ui, 80, 24)), " failed "));
  ui.page = Page::kNode;
  ui.node = "node-99";
  CHECK(has(text_of(draw(&facts, ui, 80, 24)), "no longer a member"));
  ui.page = Page::kRequest;
  Facts later = facts;
  later.requests.clear();
  const std::string over = text_of(draw(&later, ui, 80, 24));
  CHECK(has(over, "over, or no longer"));
  CHECK(has(over, "30 tokens so far"));  // as it was last seen
  ui.request = 99;
  CHECK(has(text_of(draw(&facts, ui, 80, 24)), "over, or no longer"));
}

TEST_CASE("a question stands where the keys were") {
  const Facts facts = sample();
  Ui ui = connected();
  on_key(ui, &facts, {U'd'});
  const Canvas canvas = draw(&facts, ui, 80, 24);
  CHECK(has(canvas.row(23), "Move everything off node-2 and let it leave? (y or n)"));
  CHECK(canvas.at(0, 23).style == Style::kSelected);
}

TEST_CASE("rows are shared: the least first, then in turn, the rest for the last") {
  using Rows = std::array<int, 3>;
  CHECK(share_rows<3>(20, {5, 3, 4}, {2, 2, 2}) == Rows{5, 3, 12});
  CHECK(share_rows<3>(8, {5, 3, 9}, {2, 2, 2}) == Rows{3, 3, 2});
  CHECK(share_rows<3>(5, {5, 3, 9}, {2, 2, 2}) == Rows{2, 2, 1});
  CHECK(share_rows<3>(1, {5, 3, 9}, {2, 2, 2}) == Rows{1, 0, 0});
  CHECK(share_rows<3>(0, {5, 3, 9}, {2, 2, 2}) == Rows{0, 0, 0});
  CHECK(share_rows<3>(9, {1, 1, 1}, {2, 2, 2}) == Rows{1, 1, 7});
}

}  // namespace troupe::console
