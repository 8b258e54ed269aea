#include "actors/standby/standby.h"

#include <doctest/doctest.h>

#include "actors/supervisor/options.h"
#include "tests/actors/effects.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;
using testing::all;

const Incarnation kHeadLife{1000};
const Address kSupervisor = Ref<SupervisorInbox>(kHeadNode, kHeadLife).address;
const WorkerLife kLives[] = {
    {NodeId{1}, Incarnation{11}}, {NodeId{2}, Incarnation{12}}, {NodeId{3}, Incarnation{13}}};

Address session(std::uint32_t number) {
  return Ref<SessionInbox>(kHeadNode, Incarnation{1}, number).address;
}

/// A standby, the clock, and what it wanted last.
struct Bench {
  explicit Bench(FollowState earlier = {}) : standby(options(std::move(earlier))) {
    step([&](auto& e) { wake(standby, now, e); });
  }
  Standby::Options options(FollowState earlier) {
    Standby::Options o;
    o.version = "1";
    o.checkpoint_hash = "abc";
    o.address = "b:6379";
    o.earlier = std::move(earlier);
    o.earlier.head_address = "a:6379";
    o.random = [this] { return numbers += 2; };
    o.next_term = [](Incarnation newest) {
      return Incarnation{first_incarnation(newest.value, 0)};
    };
    return o;
  }
  void step(const std::function<void(StandbyEffects&)>& act) {
    last = {};
    act(last);
    CHECK(standby.violation() == "");
  }
  template <class T>
  void hears(T message, const Address& from = kSupervisor) {
    const Envelope envelope{from, {}, message_of(std::move(message))};
    step([&](auto& e) { turn(standby, envelope, now, e); });
  }
  template <class T>
  void local(T message) {
    step([&](auto& e) { turn(standby, std::move(message), now, e); });
  }
  void wait(Duration d) {
    now += d;
    step([&](auto& e) { wake(standby, now, e); });
  }
  /// What it sends the head, or a session.
  template <class T>
  std::vector<T> says() const {
    std::vector<T> found;
    const auto look = [&](const MessagePtr& m) {
      if (const auto* t = std::get_if<T>(m.get())) found.push_back(*t);
    };
    for (const auto& e : all<ToHead>(last)) look(e.message);
    for (const auto& e : all<ToSession>(last)) look(e.message);
    return found;
  }
  void follow() {
    local(HeadUp{});
    hears(Greeting{kProtocol, "c1", "1", "/m", "abc", std::nullopt});
    REQUIRE(says<Follow>().size() == 1);
  }
  void complete() {
    follow();
    hears(Succession{1, "c1", 4, true, {std::begin(kLives), std::end(kLives)}});
  }
  void lose_head() {
    local(HeadDown{"it was killed", false});
    wait(limits::kStandbySilence);
  }
  std::uint64_t number() const { return standby.known().standby; }

  std::uint64_t numbers = 100;
  TimePoint now{};
  StandbyEffects last;
  Standby standby;
};

TEST_CASE("it follows, says what it has, and takes over with more than half of the workers") {
  Bench b;
  CHECK(all<SeekHead>(b.last).size() == 1);
  b.follow();
  // Its word that it does not take over is on the disk before the head hears of it.
  REQUIRE(all<KeepFollowing>(b.last).size() == 1);
  CHECK_FALSE(all<KeepFollowing>(b.last)[0].state.complete);
  b.hears(JournalCopy{9, 5, true, true, true, {}});
  REQUIRE(all<KeepCopy>(b.last).size() == 1);
  CHECK(all<KeepCopy>(b.last)[0].records.file == 1);
  b.local(JournalKept{1, 5});
  REQUIRE(b.says<Followed>().size() == 1);
  CHECK(b.says<Followed>()[0].mark == 5);
  b.hears(Succession{1, "c1", 4, true, {std::begin(kLives), std::end(kLives)}});
  CHECK(all<KeepFollowing>(b.last).back().state.complete);

  b.local(HeadDown{"it was killed", false});
  CHECK(b.standby.role() == Standby::Role::kFollows);
  for (const std::uint32_t s : {8u, 9u, 7u}) b.local(SessionUp{s, "w"});
  CHECK(b.says<Standing>().empty());  // they may soon be asked
  b.wait(limits::kStandbySilence);
  CHECK(b.standby.role() == Standby::Role::kAsks);
  REQUIRE(b.says<Standing>().size() == 3);
  const Incarnation term = b.says<Standing>()[0].term;
  CHECK(term > kHeadLife);
  b.hears(Pledge{term, kLives[0], b.number()}, session(7));
  b.hears(Pledge{term, kLives[0], b.number()}, session(8));  // the same life, once more
  CHECK(b.standby.role() == Standby::Role::kAsks);
  b.hears(Pledge{term, kLives[1], b.number()}, session(9));
  CHECK(b.standby.role() == Standby::Role::kRules);
  REQUIRE(all<TakeOver>(b.last).size() == 1);
  CHECK(all<TakeOver>(b.last)[0].term == term);
}

TEST_CASE("pledges of others than those who know it do not count") {
  Bench b;
  b.complete();
  b.lose_head();
  const Incarnation term = b.standby.known().term;
  const std::uint64_t number = b.number();
  for (std::uint32_t s = 1; s <= 3; ++s) b.local(SessionUp{s, "w"});
  const WorkerLife stranger{NodeId{9}, Incarnation{19}}, again{NodeId{1}, Incarnation{21}};
  b.hears(Pledge{term, kLives[0], number}, session(1));
  for (const Pledge& pledge : {Pledge{term, kLives[1], 0}, Pledge{term, kLives[1], number + 2},
                               Pledge{term, stranger, number}, Pledge{term, again, number},
                               Pledge{Incarnation{term.value + 1}, kLives[1], number}}) {
    b.hears(pledge, session(2));
    CHECK(b.standby.role() == Standby::Role::kAsks);
  }
  // Nor does a session speak for two workers.
  b.hears(Pledge{term, kLives[1], number}, session(1));
  CHECK(b.standby.role() == Standby::Role::kAsks);
  b.hears(Pledge{term, kLives[1], number}, session(3));
  CHECK(b.standby.role() == Standby::Role::kRules);
}

TEST_CASE("without all that was accepted, or without workers, it asks nobody") {
  SUBCASE("not complete") {
    Bench b;
    b.follow();
    b.hears(Succession{1, "c1", 4, false, {kLives[0]}});
    b.lose_head();
    CHECK(b.standby.role() == Standby::Role::kFollows);
    b.local(SessionUp{7, "w"});
    REQUIRE(b.says<Standing>().size() == 1);
    CHECK(b.says<Standing>()[0].term == Incarnation{});
  }
  SUBCASE("no workers") {
    Bench b;
    b.follow();
    b.hears(Succession{1, "c1", 4, true, {}});
    b.lose_head();
    CHECK(b.standby.role() == Standby::Role::kFollows);
  }
}

TEST_CASE("a head that comes back goes on, and what the standby had is void") {
  Bench b;
  b.complete();
  const std::uint64_t before = b.number();
  b.lose_head();
  const Incarnation term = b.standby.known().term;
  for (std::uint32_t s = 1; s <= 2; ++s) b.local(SessionUp{s, "w"});
  b.hears(Pledge{term, kLives[0], before}, session(1));
  SUBCASE("it is found") {
    b.follow();
    CHECK(b.says<Follow>()[0].instead == before);
    CHECK(b.number() != before);
  }
  SUBCASE("it asks") {
    b.hears(HeadReturns{"another"}, session(5));
    CHECK(b.standby.role() == Standby::Role::kAsks);
    b.hears(HeadReturns{"c1"}, session(5));
    REQUIRE(b.says<Standing>().size() == 1 + 2);  // to the other sessions as well
    CHECK(b.says<Standing>().back().standby == before);
    CHECK(b.says<Standing>().back().term == Incarnation{});
  }
  CHECK(b.standby.role() == Standby::Role::kFollows);
  REQUIRE(all<KeepFollowing>(b.last).size() == 1);
  CHECK_FALSE(all<KeepFollowing>(b.last)[0].state.complete);
  b.hears(Pledge{term, kLives[1], before}, session(2));
  CHECK(b.standby.role() == Standby::Role::kFollows);
  b.lose_head();
  CHECK(b.standby.role() == Standby::Role::kFollows);
}

TEST_CASE("its own crash changes nothing") {
  Bench first;
  first.complete();
  Bench b(first.standby.known());
  b.local(HeadDown{"nobody answers", false});
  b.wait(limits::kStandbySilence);
  CHECK(b.standby.role() == Standby::Role::kAsks);
}

TEST_CASE("a head that says nothing is left, and one that lives is asked for signs of it") {
  Bench b;
  b.complete();
  for (int i = 0; i < 20; ++i) {
    b.wait(limits::kRenewEvery);
    REQUIRE(b.says<Followed>().size() == 1);
    b.hears(b.says<Followed>()[0]);
  }
  for (Duration silent{}; silent < limits::kStandbySilence; silent += limits::kRenewEvery)
    b.wait(limits::kRenewEvery);
  CHECK(b.standby.role() == Standby::Role::kAsks);
}

TEST_CASE("another cluster's head is not followed, an older life of it not yet") {
  for (const bool may_take_over : {false, true}) {
    CAPTURE(may_take_over);
    Bench b;
    may_take_over ? b.complete() : b.follow();
    b.local(HeadDown{"", false});
    b.wait(limits::kSeekBackoffMax);
    b.local(HeadUp{});
    b.hears(Greeting{kProtocol, "c1", "1", "/m", "abc", std::nullopt},
            Ref<SupervisorInbox>(kHeadNode, Incarnation{999}).address);
    CHECK(b.says<Follow>().empty());
    CHECK(all<LeaveHead>(b.last).size() == 1);
    b.wait(limits::kSeekBackoffMax);
    b.local(HeadUp{});
    b.hears(Greeting{kProtocol, "c2", "1", "/m", "abc", std::nullopt});
    // Who may take over does not go because a stranger is at the head's address.
    CHECK(all<StandbyEnds>(b.last).empty() == may_take_over);
    CHECK(b.standby.known().complete == may_take_over);
  }
}

TEST_CASE("a standby that knows no head yet gives way to whoever returns") {
  Bench b;
  b.local(SessionUp{5, "h"});
  b.hears(HeadReturns{"c1"}, session(5));
  REQUIRE_FALSE(b.says<Standing>().empty());
  CHECK(b.says<Standing>().back().cluster_id == "c1");
}

TEST_CASE("what an earlier session's journal still writes is not said of this one's") {
  Bench b;
  b.follow();
  b.hears(JournalCopy{1, 900, true, false, false, {}});
  b.local(HeadDown{"", false});
  b.wait(limits::kSeekBackoffMin);
  b.follow();
  b.local(JournalKept{1, 900});
  CHECK(b.says<Followed>().empty());
  b.hears(JournalCopy{1, 3, true, false, false, {}});
  CHECK(all<KeepCopy>(b.last)[0].records.file == 2);
  b.local(JournalKept{2, 3});
  REQUIRE(b.says<Followed>().size() == 1);
  CHECK(b.says<Followed>()[0].mark == 3);
}

TEST_CASE("the cluster's end is its end, and it takes nothing over") {
  Bench b;
  b.complete();
  b.hears(Stop{"asked for"});
  REQUIRE(all<StandbyEnds>(b.last).size() == 1);
  CHECK(all<StandbyEnds>(b.last)[0].code == 0);
  CHECK_FALSE(b.standby.known().complete);
}

TEST_CASE("who seeks a head for long is sent away, once") {
  Bench b;
  b.follow();
  b.local(SessionUp{7, "w"});
  CHECK(b.says<Standing>().size() == 1);
  std::size_t ends = 0;
  for (int i = 0; i < 60; ++i) {
    b.wait(limits::kRenewEvery);
    ends += all<EndSession>(b.last).size();
    b.hears(Followed{});
  }
  CHECK(ends == 1);
}

}  // namespace
}  // namespace troupe
