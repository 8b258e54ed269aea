#include <doctest/doctest.h>

#include <algorithm>
#include <iterator>
#include <random>
#include <set>

#include "tests/actors/supervisor/head_fixture.h"

// Workers, programs and time do as they like. The Supervisor's invariants must hold after each turn
// (the fixture checks them), and once everyone behaves again the cluster must serve.

namespace troupe {
namespace {

using namespace testing;

class Chaos : private Head {
 public:
  Chaos(std::uint64_t seed, std::int32_t ranks) : Head(with_copies(ranks)), dice_(seed) {
    for (int i = 0; i < 3; ++i) come();
  }

  void step() {
    switch (roll(48)) {
      case 0:
        return come();
      case 1:
        return with_worker([&](auto w) {
          down(w->first);
          take();
        });
      case 2:
        return with_worker([&](auto w) {
          from(w->second, Leave{"it likes to"});
          take();
        });
      case 3:
        return with_worker([&](auto w) {
          from(w->second, LoadFailed{newest_, roll(2) ? unavailable("no route") : corrupt("cut")});
          take();
        });
      case 4:
        return cut();
      case 5:
        return ask(DrainQuery{++query_, NodeId{1 + roll(8)}});
      case 6:
        return ask(RebalanceQuery{++query_});
      case 7:
        return with_worker([&](auto w) {
          from(w->second, ExpertCounts{{{1, {9, roll(9000), 7, roll(90'000)}}}});
        });
      case 8:
        return pass(Duration(std::chrono::milliseconds(roll(3000))), roll(4) > 0);
      case 9:
        return with_worker([&](auto w) { failed_.insert(w->first); });
      case 10:
        return with_worker([&](auto w) { slow_ = w->first; });
      case 11:
      case 12:
      case 13:
      case 14:
        return pass(200ms, true);
      default:
        return answer();
    }
  }

  /// From now on all do as they are told.
  void behave() {
    for (const auto& [session, address] : Workers(workers_)) {
      if (failed_.contains(session)) from(address, Leave{"its device failed"});
      take();
    }
    slow_ = 0;
    for (int i = 0; i < 1200; ++i) {
      while (workers_.size() < 3) come();
      while (!orders_.empty()) answer();
      pass(100ms, true);
    }
    CHECK_MESSAGE(s.state() == ClusterState::kReady, s.message());
    CHECK(!s.pending());
    CHECK(s.moves_pending() == 0);
  }

 private:
  using Workers = std::map<std::uint32_t, Address>;  // by session

  static SupervisorOptions with_copies(std::int32_t ranks) {
    auto o = options();
    o.engine.tensor_parallel_size = ranks;
    o.engine.min_devices = 2;
    o.engine.redundant_experts = 2;
    return o;
  }
  std::uint32_t roll(std::uint32_t below) { return static_cast<std::uint32_t>(dice_() % below); }

  template <class F>
  void with_worker(const F& f) {
    if (workers_.empty()) return;
    f(std::next(workers_.begin(), roll(static_cast<std::uint32_t>(workers_.size()))));
  }
  void come() {
    if (workers_.size() >= 6) return;
    const std::uint32_t session = next_session_++;
    Join join_ = good_join(static_cast<std::int32_t>(100 + session));
    join_.held_id = NodeId{roll(8)};
    join_.held_cluster = "c1";
    if (const auto address = join(session, join_)) workers_[session] = *address;
    take();
  }
  void cut() {
    with_worker([&](auto a) {
      with_worker([&](auto b) {
        if (a == b) return;
        from(a->second, PeerUnreachable{b->second.node, b->second.incarnation, "reset"});
        take();
      });
    });
  }
  template <class Query>
  void ask(Query query) {
    const std::uint32_t session = next_session_++;
    up(session);
    from_session(session, ClientHello{kProtocol, "chaos"});
    from_session(session, query);
    take();
    if (roll(2)) down(session);
  }
  /// One of the orders that wait is carried out.
  void answer() {
    if (orders_.empty()) return;
    const Send order = orders_.front();
    orders_.erase(orders_.begin());
    const bool lives = std::any_of(workers_.begin(), workers_.end(),
                                   [&](const auto& w) { return w.second == order.to; });
    if (!lives) return;
    if (const auto* load = std::get_if<Load>(order.message.get())) {
      from(order.to, LoadProgress{load->placement.version, 5, 10});
      from(order.to, Loaded{load->placement.version});
      take();
    } else if (const auto* activate = std::get_if<Activate>(order.message.get())) {
      from(order.to, Activated{activate->version});
      take();
    } else if (std::holds_alternative<Stop>(*order.message)) {
      from(order.to, Leave{"it was told to"});
      take();
    }
  }
  void pass(Duration d, bool renews) {
    for (const auto end = now + d; now < end;) {
      for (const auto& [session, address] : Workers(workers_)) {
        if (!renews && session % 2 == 0) continue;
        DeviceReport report;
        report.probe_us = session == slow_ ? 900 : 100;
        report.failed = failed_.contains(session) ? "ECC error" : "";
        ++sequence_;
        from(address, Renew{sequence_, {report}, {}, {}, sequence_ - 1});
        take();
      }
      wait(std::min<Duration>(end - now, 100ms));
      take();
    }
  }
  void check_ranks(const Placement& placement) const {
    const auto ranks = static_cast<std::size_t>(s.options().engine.tensor_parallel_size);
    for (std::size_t i = 0; i < placement.shards.size(); ++i) {
      CHECK(placement.shards[i].tp_rank == i % ranks);
      CHECK(placement.shards[i].replica == placement.shards[i - i % ranks].replica);
    }
    CHECK(placement.shards.size() == placement.replicas.size() * ranks);
  }
  /// What the newest turn orders; those whose life is over end.
  void take() {
    if (s.active()) check_ranks(*s.active());
    for (const auto& send : all<Send>(last)) {
      if (const auto* load = std::get_if<Load>(send.message.get())) {
        check_ranks(load->placement);
        newest_ = load->placement.version;
      }
      orders_.push_back(send);
    }
    std::erase_if(workers_, [&](const auto& w) {
      const auto member = s.members().find(w.second.node);
      return member == s.members().end() || member->second.incarnation != w.second.incarnation;
    });
  }

  std::mt19937_64 dice_;
  Workers workers_;
  std::vector<Send> orders_;
  std::set<std::uint32_t> failed_;  ///< sessions of workers without a device
  std::uint32_t slow_ = 0;          ///< session of the worker with a slow device
  PlacementVersion newest_;
  std::uint64_t sequence_ = 0, query_ = 0;
  std::uint32_t next_session_ = 1;
};

TEST_CASE("whatever happens in whatever order, the invariants hold and the cluster serves again") {
  for (std::uint64_t seed = 1; seed <= 40; ++seed) {
    CAPTURE(seed);
    Chaos chaos(seed, 1 << seed % 4);
    for (int i = 0; i < 1000; ++i) chaos.step();
    chaos.behave();
  }
}

}  // namespace
}  // namespace troupe
