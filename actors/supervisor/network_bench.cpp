#include "actors/supervisor/network_bench.h"

#include <algorithm>
#include <utility>

#include "runtime/counted.h"

namespace troupe {
namespace {

std::uint32_t sequences(const Membership& members) {
  std::uint32_t count = 0;
  for (const auto& [id, member] : members.all())
    for (const ReplicaReport& replica : member.replicas) count += replica.running + replica.waiting;
  return count;
}

OperationProgress ended(const NetworkQuery& query, std::optional<Error> error) {
  OperationProgress news{query.query, 0, 0, {}, true, std::move(error)};
  if (news.error) news.text = news.error->message;
  return news;
}

}  // namespace

// --- What is asked for --------------------------------------------------------------------------

Status NetworkBench::check(const NetworkQuery& query, bool stopping, bool at_rest,
                           const Membership& members) {
  if (stopping) return unavailable("The cluster is stopping.");
  if (query.sizes.empty()) return invalid_argument("No size of tensors to measure was given.");
  std::string names;
  for (const auto& [id, m] : members.all()) names += (names.empty() ? "" : ", ") + to_string(id);
  if (members.all().size() < 2)
    return unavailable(names.empty() ? "The cluster has no worker yet."
                                     : "The cluster has one worker, " + names +
                                           ": there is no link between workers to measure.");
  if (query.node != NodeId{} && !members.find(query.node))
    return not_found("There is no " + to_string(query.node) + " in the cluster; its nodes are " +
                     names + ".");
  if (const auto count = sequences(members); count > 0 && !query.while_serving)
    return unavailable(
        "Requests are served now (" + std::to_string(count) +
        "), and measuring would share the links with them; wait until none is, or measure all the "
        "same with --while-serving.");
  if (!at_rest && !query.while_serving)
    return unavailable(
        "Weights are being loaded or moved, and measuring would share the links with that; wait "
        "until that is over, or measure all the same with --while-serving.");
  return {};
}

void NetworkBench::begin(std::uint32_t session, const NetworkQuery& query, bool stopping,
                         bool at_rest, SupervisorTurn& turn) {
  Status may = check(query, stopping, at_rest, turn.members);
  if (may.ok() && bench_)
    may = unavailable("Another client has the links measured now; try again when that is over.");
  if (!may.ok()) return send_to_session(turn.effects, session, ended(query, may.error()));
  NetworkPlan plan;
  plan.query = query.query;
  std::vector<NodeId> nodes;
  Bench bench{session, query, {}, {}, {}};
  for (const auto& [id, member] : turn.members.all()) {
    nodes.push_back(id);
    bench.lives[id] = member.incarnation;
    const Join& inventory = member.inventory;
    plan.nodes.push_back({id, inventory.host, inventory.fabric_address, inventory.fabric_port});
  }
  const std::uint32_t most =
      query.pairs_max == 0 ? kBenchPairsMax : std::min(query.pairs_max, kBenchPairsMax);
  bench.plan = pair_rounds(nodes, query.node == NodeId{} ? std::nullopt : std::optional(query.node),
                           most, query.one_at_a_time);
  plan.pairs = static_cast<std::uint32_t>(bench.plan.pairs);
  plan.left_out = static_cast<std::uint32_t>(bench.plan.left_out);
  plan.rounds = static_cast<std::uint32_t>(bench.plan.rounds.size());
  turn.record("network_bench", "A client has the links of " + counted(bench.plan.pairs, "pair") +
                                   " of workers measured.");
  send_to_session(turn.effects, session, std::move(plan));
  bench_ = std::move(bench);
  begin_round(turn);
  go_on(turn);
}

// --- How it goes --------------------------------------------------------------------------------

/// A round that is over is followed by the next one, or by the end.
void NetworkBench::go_on(SupervisorTurn& turn) {
  while (bench_ && measuring_.empty()) {
    const std::size_t rounds = bench_->plan.rounds.size();
    OperationProgress news{bench_->query.query, bench_->pairs, bench_->plan.pairs, {}, false, {}};
    news.finished = bench_->rounds == rounds;
    news.text = "pairs measured, " + std::to_string(bench_->rounds) + " of " +
                counted(rounds, "round") + ".";
    const bool over = news.finished;
    send_to_session(turn.effects, bench_->session, std::move(news));
    if (over) return bench_.reset();
    begin_round(turn);
  }
}

void NetworkBench::begin_round(SupervisorTurn& turn) {
  bench_->running = sequences(turn.members);
  for (const NodePair& pair : bench_->plan.rounds[bench_->rounds++]) {
    const auto [lower, higher] = pair;
    std::string why = why_gone(lower, turn.members);
    if (why.empty()) why = why_gone(higher, turn.members);
    if (!why.empty()) {
      report(pair, {}, unavailable(why), turn);
      continue;
    }
    const std::uint64_t number = ++last_number_;
    measuring_[number] = {pair, turn.now + kPairDeadline};
    turn.effects.send(turn.members.at(lower).agent(),
                      MeasureLink{number, higher, bench_->lives.at(higher), bench_->query.sizes});
  }
}

void NetworkBench::measured(const Member& member, const LinkMeasured& measured,
                            SupervisorTurn& turn) {
  const auto it = measuring_.find(measured.number);
  if (it == measuring_.end() || it->second.pair.first != member.id) return;
  const NodePair pair = it->second.pair;
  measuring_.erase(it);
  report(pair, measured.figures, measured.error, turn);
  go_on(turn);
}

void NetworkBench::report(const NodePair& pair, LinkFigures figures, std::optional<Error> error,
                          SupervisorTurn& turn) {
  ++bench_->pairs;
  bench_->running = std::max(bench_->running, sequences(turn.members));
  PairReport report{bench_->query.query, pair.first,      pair.second,
                    std::move(figures),  bench_->running, std::move(error)};
  if (why_gone(pair.first, turn.members).empty() && why_gone(pair.second, turn.members).empty())
    record_.keep(report, turn.now);
  send_to_session(turn.effects, bench_->session, std::move(report));
}

// --- What ends a pair, or all -------------------------------------------------------------------

std::string NetworkBench::why_gone(NodeId node, const Membership& members) const {
  if (const auto it = bench_->gone.find(node); it != bench_->gone.end())
    return to_string(node) + " is gone: " + it->second;
  const Member* member = members.find(node);
  if (!member || member->incarnation != bench_->lives.at(node))
    return to_string(node) + " is gone.";
  return {};
}

/// The one that measures is told, if it is still there.
void NetworkBench::end_measure(const Pairs::value_type& measuring, SupervisorTurn& turn) const {
  const NodeId lower = measuring.second.pair.first;
  if (why_gone(lower, turn.members).empty())
    turn.effects.send(turn.members.at(lower).agent(), EndMeasure{measuring.first});
}

void NetworkBench::end_all(SupervisorTurn& turn) {
  for (const auto& measuring : measuring_) end_measure(measuring, turn);
  measuring_.clear();
  bench_.reset();
}

void NetworkBench::member_gone(NodeId node, const std::string& reason, SupervisorTurn& turn) {
  record_.forget(node);
  if (!bench_ || !bench_->lives.contains(node) || bench_->gone.contains(node)) return;
  bench_->gone[node] = reason;
  for (auto it = measuring_.begin(); it != measuring_.end();) {
    const NodePair pair = it->second.pair;
    if (pair.first != node && pair.second != node) {
      ++it;
      continue;
    }
    end_measure(*it, turn);
    it = measuring_.erase(it);
    report(pair, {}, unavailable(why_gone(node, turn.members)), turn);
  }
  go_on(turn);
}

void NetworkBench::session_ended(std::uint32_t session, SupervisorTurn& turn) {
  if (bench_ && bench_->session == session) end_all(turn);
}

void NetworkBench::stop(SupervisorTurn& turn) {
  if (!bench_) return;
  send_to_session(turn.effects, bench_->session,
                  ended(bench_->query, unavailable("The cluster is stopping.")));
  end_all(turn);
}

void NetworkBench::on_wake(SupervisorTurn& turn) {
  for (auto it = measuring_.begin(); it != measuring_.end();) {
    if (turn.now < it->second.deadline) {
      ++it;
      continue;
    }
    const NodePair pair = it->second.pair;
    end_measure(*it, turn);
    it = measuring_.erase(it);
    report(pair, {},
           deadline_exceeded(to_string(pair.first) + " did not say in time what it "
                                                     "measured; it may hang, or be cut off."),
           turn);
  }
  go_on(turn);
}

void NetworkBench::arrange_wake(SupervisorEffects& effects) const {
  for (const auto& [number, measuring] : measuring_) effects.wake_at(measuring.deadline);
}

std::string NetworkBench::violation(const Membership& members, const Sessions& sessions) const {
  for (const auto& [pair, last] : record_.all())
    for (const NodeId node : {pair.first, pair.second})
      if (!members.find(node)) return "What was measured with " + to_string(node) + " is kept.";
  if (!bench_) return measuring_.empty() ? "" : "Links are measured that nobody asked for.";
  if (measuring_.empty()) return "A measurement of links does not go on.";
  const auto* session = sessions.find(bench_->session);
  if (!session || session->kind != Sessions::Kind::kClient)
    return "A measurement of links has no client to tell.";
  for (const auto& [number, measuring] : measuring_)
    for (const NodeId node : {measuring.pair.first, measuring.pair.second}) {
      const Member* member = members.find(node);
      if (!member || member->incarnation != bench_->lives.at(node))
        return "The links of " + to_string(node) + " are measured, which is gone.";
    }
  return {};
}

}  // namespace troupe
