#include "tools/troupe/console/ui.h"

#include <doctest/doctest.h>

#include <set>

#include "tests/tools/console/sample.h"

namespace troupe::console {
namespace {

using Kind = Command::Kind;

Command press(Ui& ui, const Facts& facts, std::u32string_view keys) {
  Command last;
  for (const char32_t key : keys) last = on_key(ui, &facts, {key});
  return last;
}
Command press(Ui& ui, const Facts& facts, Key::Special key) { return on_key(ui, &facts, {key}); }

using Rows = std::vector<std::string>;

}  // namespace

TEST_CASE("lists are sorted as asked, by name to begin with") {
  const Facts facts = sample();
  Ui ui;
  CHECK(rows_of(List::kNodes, facts, ui) == Rows{"node-1", "node-2", "node-10"});
  press(ui, facts, U"s");  // by load
  CHECK(rows_of(List::kNodes, facts, ui) == Rows{"node-2", "node-10", "node-1"});
  press(ui, facts, U"s");  // by memory
  CHECK(rows_of(List::kNodes, facts, ui) == Rows{"node-10", "node-2", "node-1"});
  press(ui, facts, U"s");  // by state
  CHECK(rows_of(List::kNodes, facts, ui) == Rows{"node-1", "node-2", "node-10"});
  press(ui, facts, U"s");
  CHECK(ui.choice(List::kNodes).order == 0);

  press(ui, facts, Key::kNext);
  CHECK(rows_of(List::kReplicas, facts, ui) == Rows{"0", "7"});
  press(ui, facts, U"sss");  // by KV use
  CHECK(rows_of(List::kReplicas, facts, ui) == Rows{"7", "0"});

  press(ui, facts, U"r");
  CHECK(rows_of(List::kRequests, facts, ui) == Rows{"51", "52"});
  ui.layer = 1;
  CHECK(rows_of(List::kExperts, facts, ui) == Rows{"0", "2", "3", "1"});
  ui.choice(List::kExperts).order = 1;
  CHECK(rows_of(List::kExperts, facts, ui) == Rows{"0", "1", "2", "3"});
  CHECK(rows_of(List::kLayers, facts, ui) == Rows{"1", "2"});
  CHECK(rows_of(List::kEvents, facts, ui).size() == 2);
}

TEST_CASE("the choice stays on its row when others come and go") {
  Facts facts = sample();
  Ui ui;
  const auto at = [&] {
    const auto rows = rows_of(List::kNodes, facts, ui);
    return rows[chosen(List::kNodes, facts, ui)];
  };
  CHECK(at() == "node-2");  // node-1 is lost, and not what one begins with
  press(ui, facts, Key::kUp);
  CHECK(at() == "node-1");
  press(ui, facts, Key::kUp);
  CHECK(at() == "node-1");
  press(ui, facts, Key::kDown);
  CHECK(at() == "node-2");
  facts.nodes.erase(facts.nodes.begin() + 2);  // node-1
  CHECK(at() == "node-2");
  press(ui, facts, U"jjj");
  CHECK(at() == "node-10");
  facts.nodes.erase(facts.nodes.begin());  // node-10
  CHECK(at() == "node-2");
  facts.nodes.clear();
  CHECK(chosen(List::kNodes, facts, ui) == 0);
  press(ui, facts, Key::kDown);
  press(ui, facts, Key::kEnter);
  CHECK(ui.page == Page::kOverview);
}

TEST_CASE("keys lead to pages and back") {
  const Facts facts = sample();
  Ui ui;
  press(ui, facts, Key::kEnter);
  CHECK(ui.page == Page::kNode);
  CHECK(ui.node == "node-2");
  press(ui, facts, U"?");
  CHECK(ui.page == Page::kHelp);
  press(ui, facts, U"?");
  CHECK(ui.page == Page::kNode);
  press(ui, facts, Key::kBack);
  CHECK(ui.page == Page::kOverview);
  press(ui, facts, Key::kBack);
  CHECK(ui.page == Page::kOverview);

  press(ui, facts, Key::kNext);
  press(ui, facts, Key::kEnd);
  press(ui, facts, Key::kEnter);
  CHECK(ui.page == Page::kNode);
  CHECK(ui.node == "node-2");  // where replica 7 has its first shard
  press(ui, facts, U"m");
  CHECK(ui.page == Page::kMap);
  press(ui, facts, Key::kDown);
  press(ui, facts, Key::kEnter);
  CHECK(ui.page == Page::kLayer);
  CHECK(ui.layer == 2);
  press(ui, facts, U"r");
  press(ui, facts, Key::kDown);
  press(ui, facts, Key::kEnter);
  CHECK(ui.page == Page::kRequest);
  CHECK(ui.request == 52);
  press(ui, facts, U"o");
  CHECK(ui.page == Page::kOverview);
  CHECK(ui.before.empty());
  press(ui, facts, U"ee");
  CHECK(ui.page == Page::kOverview);
  press(ui, facts, Key::kPrevious);
  CHECK(ui.panel == 0);
  CHECK(press(ui, facts, U"q").kind == Kind::kQuit);
}

TEST_CASE("draining and rebalancing ask first") {
  const Facts facts = sample();
  Ui ui;
  CHECK(press(ui, facts, U"d").kind == Kind::kNone);
  REQUIRE(ui.question);
  CHECK(ui.question->node == "node-2");
  CHECK(press(ui, facts, U"n").kind == Kind::kNone);
  CHECK_FALSE(ui.question);
  CHECK(press(ui, facts, U"dq").kind == Kind::kNone);  // any other key than y is a no
  press(ui, facts, Key::kDown);
  const Command drain = press(ui, facts, U"dy");
  CHECK(drain.kind == Kind::kDrain);
  CHECK(drain.node == "node-10");
  press(ui, facts, Key::kEnter);
  CHECK(press(ui, facts, U"dy").node == "node-10");
  CHECK(press(ui, facts, U"by").kind == Kind::kRebalance);
  press(ui, facts, U"o");
  press(ui, facts, Key::kNext);
  CHECK(press(ui, facts, U"d").kind == Kind::kNone);  // no node is in sight
  CHECK_FALSE(ui.question);
  CHECK_FALSE(ui.note.empty());
}

TEST_CASE("no key does harm before the first status, or on any page") {
  const Facts facts = sample();
  std::set<char32_t> keys{U'?', U'h', U'j', U'k', U's', U'm', U'r',
                          U'e', U'd', U'b', U'o', U'y', 0,    U'\x10FFFF'};
  for (char32_t key = Key::kUp; key <= Key::kRedraw; ++key) keys.insert(key);
  for (const Facts* shown : {static_cast<const Facts*>(nullptr), &facts}) {
    for (const char32_t first : keys) {
      for (const char32_t second : keys) {
        Ui ui;
        for (const char32_t key : {first, second, first, first})
          CHECK(on_key(ui, shown, {key}).kind != Kind::kQuit);
      }
    }
  }
}

}  // namespace troupe::console
