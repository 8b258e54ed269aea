#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>
#include <random>
#include <set>
#include <utility>
#include <variant>
#include <vector>

#include "actors/layer_shard/layer_shard.h"
#include "tests/actors/effects.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

namespace {

constexpr std::int32_t kExperts = 6, kCuts = 4, kSteps = 12;
constexpr std::uint32_t kNodes = 5;
constexpr std::size_t kRowBytes = 8;
const Address kReplicaAddress{NodeId{1}, Incarnation{1}, {ActorKind::kReplica, 0}};
const Address kShardAddress{NodeId{1}, Incarnation{1}, {ActorKind::kLayerShard, 0}};

std::uint64_t product(std::uint64_t row, std::int32_t expert) {
  return (row + 1) * 0x9e3779b97f4a7c15ull + static_cast<std::uint64_t>(expert);
}

struct Totals {
  std::uint64_t steps = 0, failed = 0, deaths = 0, cuts_off = 0, flips = 0, refusals = 0,
                questions = 0;
};

/// A shard among expert groups on a virtual clock: nodes die and come back, connections break,
/// groups refuse, placement versions follow each other. Every step has to end with exactly the
/// outputs that it lacked; it may fail only for rows that two nodes were lost with.
class Simulation {
 public:
  explicit Simulation(std::uint64_t seed) : random_(seed), shard_(first_config()) {}

  Totals run() {
    for (int i = 0; i < 3; ++i) at(later(0, 20), Begin{});
    for (int i = pick(0, 4); i > 0; --i) at(later(1, 600), Death{});
    for (int i = pick(0, 4); i > 0; --i) at(later(1, 600), Cut{});
    for (int i = pick(0, 4); i > 0; --i) at(later(1, 600), Plan{});
    while (!queue_.empty()) {
      const auto next = queue_.begin();
      now_ = next->first.first;
      const Deed deed = std::move(next->second);
      queue_.erase(next);
      std::visit([this](const auto& d) { act(d); }, deed);
      REQUIRE(totals_.questions < 3000);
    }
    CHECK(ended_ == kSteps);
    CHECK(shard_.steps() == 0);
    CHECK(released_ == begun_);
    CHECK(settled_ == told_);
    return totals_;
  }

 private:
  struct Begin {};
  struct Computed {
    StepId step;
    bool cut;
  };
  struct Death {};  // Of any node but this one.
  struct Birth {
    NodeId node;
  };
  struct Cut {};  // Any connection breaks for a moment.
  struct Down {
    NodeId node;
    Incarnation incarnation;
  };
  struct Up {
    NodeId node;
    Incarnation incarnation;
  };
  struct Plan {};  // A new version for the nodes that live: loaded at once, told later.
  struct Flip {
    std::shared_ptr<const Placement> placement;
    std::map<NodeId, Incarnation> members;
  };
  struct Wake {};
  using Deed =
      std::variant<Begin, Computed, Death, Birth, Cut, Down, Up, Plan, Flip, Wake, Envelope>;
  struct Step {
    std::int32_t cut = 0;
    std::vector<MissingOutput> missing;
    bool failed = false;
  };

  std::int32_t pick(std::int32_t low, std::int32_t high) {
    return low + static_cast<std::int32_t>(random_() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(std::int32_t percent) { return pick(1, 100) <= percent; }
  TimePoint later(std::int32_t low_ms, std::int32_t high_ms) {
    return now_ + std::chrono::milliseconds(pick(low_ms, high_ms));
  }
  void at(TimePoint time, Deed deed) {
    queue_.emplace(std::pair(time, next_deed_++), std::move(deed));
  }

  LayerShardConfig first_config() {
    for (std::uint32_t n = 1; n <= kNodes; ++n)
      alive_[NodeId{n}] = Incarnation{n == 1 ? 1 : n * 10};
    LayerShardConfig config;
    config.self = {NodeId{1}, Incarnation{1}, 0};
    config.replica = {NodeId{1}, Incarnation{1}, 0};
    config.device = {NodeId{1}, 0};
    const auto placement = make_placement();
    held_[placement->version] = placement;
    config.routes = std::make_shared<const ExpertRoutes>(*placement);
    config.members = alive_;
    return config;
  }

  /// One or two copies of each expert, on nodes that live.
  std::shared_ptr<const Placement> make_placement() {
    auto placement = std::make_shared<Placement>();
    placement->version = PlacementVersion{++version_};
    LayerExperts layer{1, {}};
    for (std::int32_t expert = 0; expert < kExperts; ++expert) {
      std::set<NodeId> nodes;
      for (int copies = chance(50) ? 1 : 2; copies > 0; --copies) {
        auto it = alive_.begin();
        std::advance(it, pick(0, static_cast<std::int32_t>(alive_.size()) - 1));
        nodes.insert(it->first);
      }
      for (const NodeId node : nodes) layer.slots.push_back({expert, {node, 0}});
    }
    placement->experts = {std::move(layer)};
    return placement;
  }

  bool lives(NodeId node, Incarnation incarnation) const {
    const auto it = alive_.find(node);
    return it != alive_.end() && it->second == incarnation;
  }

  template <class Mail>
  void play(Mail&& mail) {
    LayerShard::Effects effects;
    turn(shard_, std::forward<Mail>(mail), now_, effects);
    carry_out(effects);
  }
  void carry_out(const LayerShard::Effects& effects) {
    CHECK(shard_.violation() == "");
    for (const auto& effect : effects.list())
      std::visit([this](const auto& e) { carry(e); }, effect);
    const auto settled = told<NodeAgentInbox, RoutesSettled>(effects);
    for (const auto& news : settled) CHECK(settled_.insert(news.version).second);
    if (!settled.empty() && settled_ == told_) retire();
    if (effects.wake() && wakes_.insert(*effects.wake()).second)
      at(std::max(*effects.wake(), now_), Wake{});
  }

  /// All that was asked by older routes is answered: what they alone gave may go.
  void retire() {
    while (held_.size() > 1 && held_.begin()->first < routed_) held_.erase(held_.begin());
  }

  void carry(const Tell&) {}
  void carry(const SayProgress&) {}
  void carry(const UseRoutes&) {}
  void carry(const LoseRank&) {}
  void carry(const GiveUpStep&) {}  // its job was at its end
  void carry(const BeginStep& begin) {
    ++begun_;
    at(later(1, 5), Computed{std::get<StepPlan>(*begin.plan).body.step, true});
  }
  void carry(const ReleaseStep& release) {
    ++released_;
    steps_.erase(release.step);
  }
  void carry(const Send& send) {
    if (const auto* failed = std::get_if<StepFailed>(send.message.get())) {
      CAPTURE(failed->error.message);
      CHECK(failed->error.message.find("two nodes in a row") != std::string::npos);
      ++totals_.failed;
      steps_.at(failed->step).failed = true;
      end_step();
    } else if (std::holds_alternative<StepResult>(*send.message)) {
      end_step();
    } else if (std::holds_alternative<StepProgress>(*send.message)) {
      return;
    } else {
      ++totals_.questions;
      at(now_ + std::chrono::microseconds(pick(50, 3000)),
         Envelope{kShardAddress, send.to, send.message});
    }
  }

  void end_step() {
    ++ended_;
    if (ended_ + 3 <= kSteps) at(later(0, 60), Begin{});
  }

  // --- Deeds ---

  void act(const Begin&) {
    StepPlan plan;
    plan.body.step = StepId{++totals_.steps};
    plan.body.sequences.resize(1);
    plan.body.sequences[0].tokens = {1, 2, 3};
    steps_[plan.body.step];
    const auto message = message_of(std::move(plan));
    play(Envelope{kReplicaAddress, kShardAddress, message});
  }

  void act(const Computed& computed) {
    const auto found = steps_.find(computed.step);
    if (found == steps_.end()) return;
    Step& step = found->second;
    ComputeOutcome outcome;
    if (!computed.cut || step.failed) {
      play(StepComputed{computed.step, outcome});
    } else if (step.cut == kCuts) {
      outcome.done = true;
      play(StepComputed{computed.step, outcome});
    } else {
      ++step.cut;
      ExpertCut cut{1, {}, kRowBytes, std::vector<std::byte>(3 * kRowBytes), {}};
      for (std::int32_t row = 0; row < 3; ++row) {
        const std::uint64_t value = row_of(computed.step, step.cut, row);
        std::memcpy(cut.rows.data() + static_cast<std::size_t>(row) * kRowBytes, &value, kRowBytes);
        for (std::int32_t slot = 0; slot < 2; ++slot)
          if (chance(80)) cut.missing.push_back({row, slot, pick(0, kExperts - 1), row});
      }
      if (cut.missing.empty()) cut.missing.push_back({0, 0, 0});
      step.missing = cut.missing;
      at(later(0, 10), Computed{computed.step, false});
      play(StepCut{computed.step, std::move(cut)});
    }
  }

  static std::uint64_t row_of(StepId step, std::int32_t cut, std::int32_t row) {
    return step.value * 10'000 + static_cast<std::uint64_t>(cut * 10 + row);
  }

  /// Every output that was missing came once, and it is the right one.
  void carry(const ResumeStep& resume) {
    const Step& step = steps_.at(resume.step);
    std::map<std::pair<std::int32_t, std::int32_t>, std::uint64_t> came;
    resume.cut.each_answered([&](const MissingOutput& output, const Payload& row) {
      const auto bytes = row.bytes;
      std::uint64_t value = 0;
      std::memcpy(&value, bytes.data(), kRowBytes);
      CHECK(came.emplace(std::pair(output.row, output.slot), value).second);
    });
    CHECK(came.size() == step.missing.size());
    for (const auto& m : step.missing)
      CHECK(came[{m.row, m.slot}] == product(row_of(resume.step, step.cut, m.row), m.expert));
    at(later(1, 5), Computed{resume.step, true});
  }

  void act(const Death&) {
    auto it = alive_.begin();
    std::advance(it, pick(1, static_cast<std::int32_t>(alive_.size()) - 1));
    if (it->first == NodeId{1} || alive_.size() < 3) return;
    ++totals_.deaths;
    const auto [node, incarnation] = *it;
    alive_.erase(it);
    at(later(0, 50), Down{node, incarnation});
    at(later(10, 100), Plan{});
    at(later(120, 500), Birth{node});
  }

  void act(const Birth& birth) {
    const Incarnation next{++lives_ * 100 + birth.node.value};
    alive_[birth.node] = next;
    at(later(1, 30), Up{birth.node, next});
    at(later(40, 100), Plan{});
  }

  void act(const Cut&) {
    auto it = alive_.begin();
    std::advance(it, pick(0, static_cast<std::int32_t>(alive_.size()) - 1));
    if (it->first == NodeId{1}) return;
    ++totals_.cuts_off;
    const auto [node, incarnation] = *it;
    std::erase_if(queue_, [&](const auto& entry) {
      const auto* envelope = std::get_if<Envelope>(&entry.second);
      return envelope && (envelope->to.node == node || envelope->from.node == node);
    });
    act(Down{node, incarnation});
    at(later(1, 50), Up{node, incarnation});
  }

  void act(const Down& down) { play(PeerDown{down.node, down.incarnation, "it is gone"}); }

  void act(const Up& up) {
    if (lives(up.node, up.incarnation)) play(PeerUp{up.node, up.incarnation});
  }

  void act(const Plan&) {
    const auto placement = make_placement();
    held_[placement->version] = placement;
    at(later(0, 20), Flip{placement, alive_});
  }

  void act(const Flip& flip) {
    if (flip.placement->version < routed_) return;
    ++totals_.flips;
    routed_ = flip.placement->version;
    told_.insert(routed_);
    play(RoutesChanged{std::make_shared<const ExpertRoutes>(*flip.placement), flip.members});
  }

  void act(const Wake&) {
    wakes_.erase(now_);
    LayerShard::Effects effects;
    wake(shard_, now_, effects);
    carry_out(effects);
  }

  bool holds(NodeId node, std::int32_t expert) const {
    for (const auto& [version, placement] : held_)
      for (const auto& slot : placement->experts[0].slots)
        if (slot.expert == expert && slot.device.node == node) return true;
    return false;
  }

  void act(const Envelope& envelope) {
    if (envelope.to == kShardAddress) return play(envelope);
    const auto& dispatch = std::get<Dispatch>(*envelope.message);
    const auto answer = [&](auto&& message) {
      at(now_ + std::chrono::microseconds(pick(50, 5000)),
         Envelope{envelope.to, kShardAddress, message_of(std::move(message))});
    };
    if (!lives(envelope.to.node, envelope.to.incarnation)) {
      // What is sent to the dead is lost, or comes back.
      if (chance(50))
        answer(Undeliverable{envelope.to, static_cast<std::uint32_t>(envelope.message->index()),
                             dispatch.call, unavailable("not a member")});
      return;
    }
    const bool all = std::all_of(dispatch.pairs.begin(), dispatch.pairs.end(),
                                 [&](const auto& p) { return holds(envelope.to.node, p.expert); });
    if (!all || chance(5)) {
      ++totals_.refusals;
      return answer(NotHere{dispatch.call, {}, "not here"});
    }
    auto buffer = std::make_shared<Buffer>(dispatch.pairs.size() * kRowBytes);
    for (std::size_t i = 0; i < dispatch.pairs.size(); ++i) {
      std::uint64_t row = 0;
      std::memcpy(&row, dispatch.payload.bytes.data() + dispatch.pairs[i].row * kRowBytes,
                  kRowBytes);
      const std::uint64_t value = product(row, dispatch.pairs[i].expert);
      std::memcpy(buffer->data() + i * kRowBytes, &value, kRowBytes);
    }
    answer(ExpertOutput{dispatch.call, static_cast<std::uint32_t>(dispatch.pairs.size()),
                        Payload::of(std::move(buffer))});
  }

  std::mt19937_64 random_;
  TimePoint now_{std::chrono::seconds(1)};
  std::map<NodeId, Incarnation> alive_;
  std::map<PlacementVersion, std::shared_ptr<const Placement>> held_;  // Its union is in memory.
  std::uint64_t version_ = 0, lives_ = 0;
  PlacementVersion routed_;
  LayerShard shard_;
  std::map<StepId, Step> steps_;
  std::set<PlacementVersion> told_, settled_;  // Of the routes.
  std::uint64_t begun_ = 0, released_ = 0;
  std::int32_t ended_ = 0;
  std::set<TimePoint> wakes_;
  std::map<std::pair<TimePoint, std::uint64_t>, Deed> queue_;
  std::uint64_t next_deed_ = 0;
  Totals totals_;
};

}  // namespace

TEST_CASE("steps end with exactly their outputs while nodes die, return and versions change") {
  Totals total;
  for (std::uint64_t seed = 1; seed <= 2000; ++seed) {
    CAPTURE(seed);
    const Totals t = Simulation(seed).run();
    total.steps += t.steps;
    total.failed += t.failed;
    total.deaths += t.deaths;
    total.cuts_off += t.cuts_off;
    total.flips += t.flips;
    total.refusals += t.refusals;
    total.questions += t.questions;
  }
  MESSAGE(total.steps << " steps, " << total.questions << " questions, " << total.deaths
                      << " deaths, " << total.cuts_off << " cuts, " << total.flips << " flips, "
                      << total.refusals << " refusals, " << total.failed << " failed");
  CHECK(total.deaths > 1000);
  CHECK(total.refusals > 1000);
  CHECK(total.failed < total.steps / 100);
}
