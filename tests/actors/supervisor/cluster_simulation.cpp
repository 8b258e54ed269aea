#include "cluster_simulation.h"

#include <algorithm>

namespace troupe {
namespace {

using namespace std::chrono_literals;

ModelCosts tiny_model() {
  ModelCosts model;
  model.layers = {{1000, false}, {1000, true}, {1000, true}};
  model.num_experts = 6;
  model.expert_bytes = 100;
  model.kv_bytes_per_token_layer = 4;
  return model;
}

std::pair<int, int> pair_of(int a, int b) { return {std::min(a, b), std::max(a, b)}; }

}  // namespace

ClusterSimulation::ClusterSimulation(std::uint64_t seed, int workers, int min_devices)
    : random_(seed), min_devices_(min_devices), workers_(static_cast<std::size_t>(workers)) {
  now_ += 1h;
}

void ClusterSimulation::break_rule(const std::string& rule) {
  if (violation_.empty()) violation_ = rule + "\n" + describe();
}

void ClusterSimulation::after(Duration delay, std::function<void()> run) {
  events_.push({now_ + delay, ++numbers_, std::move(run)});
}

Duration ClusterSimulation::delay() {
  return pick(0, 50) == 0 ? pick_ms(20, 150) : std::chrono::microseconds(pick(50, 3000));
}

bool ClusterSimulation::run_until(const std::function<bool()>& done, Duration limit) {
  const TimePoint end = now_ + limit;
  while (violation_.empty() && !done()) {
    if (events_.empty() || events_.top().at > end) {
      now_ = end;
      return false;
    }
    const Event event = events_.top();
    events_.pop();
    now_ = event.at;
    event.run();
    check_rules();
  }
  return violation_.empty();
}

void ClusterSimulation::run_for(Duration duration) {
  run_until([] { return false; }, duration);
}

// --- Processes ----------------------------------------------------------------------------------

void ClusterSimulation::start() {
  for (int w = 0; w < workers(); ++w) after(pick_ms(0, 300), [this, w] { start_worker(w); });
  after(pick_ms(0, 300), [this] { start_head(); });
}

void ClusterSimulation::start_head() {
  if (head_ || !head_wanted_) return;
  ++head_life_;
  SupervisorOptions options;
  options.cluster_id = "cluster";
  options.checkpoint_hash = "hash";
  options.model_path = "/model";
  options.host = "head";
  options.pid = 1;
  options.engine.min_devices = min_devices_;
  options.engine.max_model_len = 64;
  options.costs = [](Numerics) { return tiny_model(); };
  options.random = [this](std::span<std::byte> bytes) {
    for (auto& b : bytes) b = static_cast<std::byte>(random_());
  };
  options.next_node = kept_next_node_;
  // This machine's clock stands still: what was kept has to do.
  kept_incarnation_ = first_incarnation(kept_incarnation_, 1000);
  if (kept_incarnation_ <= newest_incarnation_) break_rule("A head's life got an old incarnation.");
  newest_incarnation_ = kept_incarnation_;
  options.incarnation = Incarnation{kept_incarnation_};
  options.started = now_;
  head_ = std::make_unique<Supervisor>(std::move(options));
}

void ClusterSimulation::kill_head(Duration down) {
  if (!head_) return;
  head_.reset();
  head_wake_.reset();
  for (auto& [session, link] : links_) {
    if (!link.up_at_head) continue;
    link.up_at_head = false;
    transit(session, 1, [this, s = session] { down_at_worker(s, "connection reset"); });
  }
  after(down, [this] { start_head(); });
}

void ClusterSimulation::start_worker(int w) {
  Worker& worker = at(w);
  if (worker.alive) return;
  ++worker.life;
  worker.alive = true;
  worker.hung = false;
  worker.stuck = false;
  worker.inbox.clear();
  worker.session.reset();
  worker.wake.reset();
  worker.exit.reset();
  NodeAgentOptions options;
  options.host = "host-" + std::to_string(w);
  options.pid = 1000 * (w + 1) + worker.life;
  options.head = "head:6379";
  options.numerics = {Numerics::kReference, Numerics::kAvx2};
  options.devices = {{"cpu", 1 << 20, 1}};
  options.fabric_address = "bulk-" + std::to_string(w);
  if (pick(0, 1) == 1) {  // it had a disk
    options.held_id = worker.held_id;
    options.held_cluster = worker.held_cluster;
  }
  worker.agent = std::make_unique<NodeAgent>(std::move(options));
  with_agent(w, [this](NodeAgent& agent, NodeAgentActions& a) { agent.start(now_, a); });
}

void ClusterSimulation::kill_worker(int w, Duration down) {
  Worker& worker = at(w);
  if (!worker.alive) return;
  worker.alive = false;
  while (!worker.bulk.empty()) close_bulk(w, FabricToken(worker.bulk.begin()->first), false);
  for (auto& [session, link] : links_) {
    if (link.worker != w || !link.up_at_worker) continue;
    link.up_at_worker = false;
    transit(session, 0, [this, s = session] { down_at_head(s, "connection reset"); });
  }
  worker.agent.reset();
  after(down, [this, w] { start_worker(w); });
}

void ClusterSimulation::hang_worker(int w, Duration duration) {
  Worker& worker = at(w);
  if (!worker.alive || worker.hung) return;
  worker.hung = true;
  after(duration, [this, w, life = worker.life] {
    Worker& hung = at(w);
    if (!hung.alive || hung.life != life) return;
    hung.hung = false;
    auto inbox = std::move(hung.inbox);
    hung.inbox.clear();
    for (auto& run : inbox) at_worker(w, life, std::move(run));
  });
}

void ClusterSimulation::cut_worker(int w, Duration duration) {
  if (at(w).cut) return;
  at(w).cut = true;
  after(duration, [this, w] {
    at(w).cut = false;
    std::vector<std::function<void()>> runs;
    for (auto& [session, link] : links_) {
      if (link.worker != w) continue;
      for (auto& held : link.held) {
        for (auto& run : held) runs.push_back(std::move(run));
        held.clear();
      }
    }
    for (auto& run : runs) run();
  });
}

void ClusterSimulation::cut_pair(int a, int b, Duration duration) {
  const auto key = pair_of(a, b);
  if (a == b || pair_cuts_.contains(key)) return;
  pair_cuts_.insert(key);
  std::vector<FabricToken> both;
  for (const auto& [token, end] : at(a).bulk) {
    if (end.up && at(b).bulk.contains(token)) both.push_back(token);
  }
  for (const auto& token : both) close_bulk(a, token, true);
  after(duration, [this, key] { pair_cuts_.erase(key); });
}

void ClusterSimulation::stick_device(int w, Duration duration) {
  at(w).stuck = true;
  after(duration, [this, w] { at(w).stuck = false; });
}

void ClusterSimulation::reset_session(int w) {
  for (auto& [session, link] : links_) {
    if (link.worker != w || !link.up_at_head || !link.up_at_worker) continue;
    after(delay(), [this, s = session] { down_at_head(s, "reset"); });
    after(delay(), [this, s = session] { down_at_worker(s, "reset"); });
  }
}

void ClusterSimulation::random_fault() {
  const int w = static_cast<int>(pick(0, workers_.size() - 1));
  switch (pick(0, 6)) {
    case 0:
      kill_worker(w, pick_ms(10, 1500));
      break;
    case 1:
      hang_worker(w, pick_ms(50, 3000));
      break;
    case 2:
      cut_worker(w, pick_ms(50, 3000));
      break;
    case 3:
      cut_pair(w, static_cast<int>(pick(0, workers_.size() - 1)), pick_ms(50, 3000));
      break;
    case 4:
      stick_device(w, pick_ms(50, 2500));
      break;
    case 5:
      reset_session(w);
      break;
    default:
      kill_head(pick_ms(10, 2000));
      break;
  }
}

void ClusterSimulation::stop_head() {
  head_wanted_ = false;
  with_head([this](Supervisor& s, SupervisorActions& a) { s.stop("the test is over", now_, a); });
}

void ClusterSimulation::leave(int w) {
  with_agent(w, [this](NodeAgent& agent, NodeAgentActions& a) { agent.leave("SIGTERM", now_, a); });
}

// --- Carrying out actions -----------------------------------------------------------------------

void ClusterSimulation::at_worker(int w, int life, std::function<void()> run) {
  Worker& worker = at(w);
  if (!worker.alive || worker.life != life) return;
  if (worker.hung) {
    worker.inbox.push_back(std::move(run));
  } else {
    run();
  }
}

void ClusterSimulation::with_agent(int w, const AgentCall& call) {
  if (!at(w).alive) return;
  NodeAgentActions actions;
  call(*at(w).agent, actions);
  apply_worker(w, actions);
}

void ClusterSimulation::with_head(const HeadCall& call) {
  if (!head_) return;
  SupervisorActions actions;
  call(*head_, actions);
  apply_head(actions);
}

void ClusterSimulation::apply_head(SupervisorActions& actions) {
  if (actions.keep_next_node) kept_next_node_ = *actions.keep_next_node;
  for (const auto& bind : actions.bind_sessions) {
    links_.at(bind.session).bound = {bind.node, bind.incarnation, {ActorKind::kNodeAgent, 0}};
    if (bind.incarnation.value <= newest_incarnation_) break_rule("An incarnation came again.");
    newest_incarnation_ = bind.incarnation.value;
  }
  for (const auto& send : actions.sends) {
    for (auto& [session, link] : links_) {
      const bool by_session = send.to.node == kHeadNode && send.to.actor.index == session;
      if (link.up_at_head && (by_session || link.bound == send.to)) to_worker(session, send);
    }
  }
  for (const auto& close : actions.close_sessions) {
    transit(close.session, 1, [this, c = close] { down_at_worker(c.session, c.reason); });
    after(delay(), [this, c = close] { down_at_head(c.session, "closed"); });
  }
  if (actions.replicas_lost) ++lost_while_ready_;
  if (actions.replicas_changed) {
    ++times_ready_;
    for (const auto& route : actions.replicas_changed->replicas) {
      const auto it = head_->members().find(route.address.node);
      if (it == head_->members().end() || it->second.incarnation != route.address.incarnation) {
        break_rule("A replica is routed to a node that is no member.");
      }
    }
  }
  if (actions.wake && (!head_wake_ || *actions.wake < *head_wake_)) {
    head_wake_ = actions.wake;
    after(std::max<Duration>(*actions.wake - now_, 0ns), [this, life = head_life_] {
      if (head_ && head_life_ == life) wake_head();
    });
  }
  if (actions.stop_self) {
    head_ended_ = true;
    kill_head(1h);
  }
}

void ClusterSimulation::wake_head() {
  if (!head_wake_ || now_ < *head_wake_) return;
  head_wake_.reset();
  with_head([this](Supervisor& s, SupervisorActions& a) { s.on_wake(now_, a); });
}

void ClusterSimulation::apply_worker(int w, NodeAgentActions& actions) {
  Worker& worker = at(w);
  const int life = worker.life;
  if (actions.joined) {
    worker.held_id = actions.joined->id;
    worker.held_cluster = actions.joined->cluster_id;
  }
  if (actions.inspect_checkpoint) {
    after(pick_ms(0, 20), [this, w, life] {
      at_worker(w, life, [this, w] {
        with_agent(w, [this](NodeAgent& agent, NodeAgentActions& a) {
          agent.checkpoint_inspected(std::string("hash"), now_, a);
        });
      });
    });
  }
  for (const auto& send : actions.sends) {
    if (worker.session && send.to.node == kHeadNode) to_head(*worker.session, send.message);
  }
  for (const auto& peer : actions.forget_peers) close_bulk(w, peer.token, false);
  for (const auto& peer : actions.expect_peers) open_bulk(w, peer, limits::kBulkExpectDeadline);
  for (const auto& peer : actions.connect_peers) open_bulk(w, peer, limits::kBulkConnectDeadline);
  if (actions.load) load(w, *actions.load);
  if (actions.close_session && worker.session) {
    const std::uint32_t session = *worker.session;
    worker.session.reset();
    links_.at(session).up_at_worker = false;
    transit(session, 0, [this, session] { down_at_head(session, "closed by the peer"); });
  }
  if (actions.connect_head) dial(w);
  if (actions.wake && (!worker.wake || *actions.wake < *worker.wake)) {
    worker.wake = actions.wake;
    after(std::max<Duration>(*actions.wake - now_, 0ns),
          [this, w, life] { at_worker(w, life, [this, w] { wake_worker(w); }); });
  }
  if (actions.exit) {
    kill_worker(w, 24h);
    worker.exit = actions.exit;
  }
}

void ClusterSimulation::wake_worker(int w) {
  Worker& worker = at(w);
  if (!worker.wake || now_ < *worker.wake) return;
  worker.wake.reset();
  NodeProgress progress;
  progress.devices_alive = !worker.stuck;
  progress.devices.resize(1);
  with_agent(w, [&](NodeAgent& agent, NodeAgentActions& a) { agent.on_wake(now_, progress, a); });
}

// --- The control lane ---------------------------------------------------------------------------

void ClusterSimulation::transit(std::uint32_t session, int direction, std::function<void()> run) {
  TimePoint& last = links_.at(session).last[direction];
  last = std::max(last, now_ + delay());
  after(last - now_, [this, session, direction, run = std::move(run)] {
    Link& link = links_.at(session);
    if (at(link.worker).cut) {
      link.held[direction].push_back(run);
    } else {
      run();
    }
  });
}

void ClusterSimulation::dial(int w) {
  Worker& worker = at(w);
  const std::uint32_t session = next_session_++;
  worker.session = session;
  Link& link = links_[session];
  link.worker = w;
  link.worker_life = worker.life;
  link.up_at_worker = true;
  after(worker.cut ? pick_ms(500, 1000) : delay(), [this, session, w] {
    Link& dialled = links_.at(session);
    if (!head_ || at(w).cut) {
      down_at_worker(session, "nobody answers");
      return;
    }
    dialled.up_at_head = true;
    with_head([&](Supervisor& s, SupervisorActions& a) {
      s.session_up(session, "host-" + std::to_string(w), now_, a);
    });
    if (!dialled.up_at_worker) {
      transit(session, 0, [this, session] { down_at_head(session, "closed by the peer"); });
    }
  });
}

void ClusterSimulation::to_head(std::uint32_t session, MessagePtr message) {
  transit(session, 0, [this, session, message = std::move(message)] {
    const Link& link = links_.at(session);
    if (!link.up_at_head) return;
    with_head([&](Supervisor& s, SupervisorActions& a) {
      const Address stranger{kHeadNode, s.options().incarnation, {ActorKind::kClient, session}};
      s.on({link.bound.value_or(stranger), s.address(), message}, now_, a);
    });
  });
}

void ClusterSimulation::to_worker(std::uint32_t session, const Actions::Send& send) {
  transit(session, 1, [this, session, send, from = head_->address()] {
    const Link& sent = links_.at(session);
    at_worker(sent.worker, sent.worker_life, [this, session, send, from] {
      Link& link = links_.at(session);
      if (at(link.worker).session != session) return;
      if (!link.greeted) {
        link.greeted = true;
        with_agent(link.worker,
                   [this](NodeAgent& agent, NodeAgentActions& a) { agent.session_up(now_, a); });
      }
      with_agent(link.worker, [&](NodeAgent& agent, NodeAgentActions& a) {
        agent.on({from, send.to, send.message}, now_, a);
      });
    });
  });
}

void ClusterSimulation::down_at_worker(std::uint32_t session, const std::string& reason) {
  const Link& lost = links_.at(session);
  at_worker(lost.worker, lost.worker_life, [this, session, reason] {
    Link& link = links_.at(session);
    link.up_at_worker = false;
    Worker& worker = at(link.worker);
    if (worker.session != session) return;
    worker.session.reset();
    with_agent(link.worker, [&](NodeAgent& agent, NodeAgentActions& a) {
      agent.session_down(reason, false, now_, a);
    });
  });
}

void ClusterSimulation::down_at_head(std::uint32_t session, const std::string& reason) {
  Link& link = links_.at(session);
  if (!link.up_at_head) return;
  link.up_at_head = false;
  with_head([&](Supervisor& s, SupervisorActions& a) { s.session_down(session, reason, now_, a); });
}

// --- Weights and the bulk lane ------------------------------------------------------------------

void ClusterSimulation::load(int w, const NodeAgentActions::Work& work) {
  const int life = at(w).life;
  const bool fails = load_failures && pick(0, 9) == 0;
  const auto later = [&](Duration when, AgentCall call) {
    after(when, [this, w, life, call = std::move(call)] {
      at_worker(w, life, [this, w, call] { with_agent(w, call); });
    });
  };
  const PlacementVersion version = work.version;
  later(pick_ms(1, 20), [this, version](NodeAgent& agent, NodeAgentActions& a) {
    agent.load_progress({version, 1, 2}, now_, a);
  });
  later(pick_ms(5, 400), [this, version, fails](NodeAgent& agent, NodeAgentActions& a) {
    if (fails) {
      agent.load_failed(version, unavailable("The file system hiccups."), now_, a);
    } else {
      agent.loaded(version, now_, a);
    }
  });
}

void ClusterSimulation::open_bulk(int w, const Peer& peer, Duration deadline) {
  at(w).bulk[peer.token] = {peer.id, peer.incarnation, false};
  after(delay(), [this, token = peer.token] { try_pair(token); });
  after(deadline, [this, w, life = at(w).life, token = peer.token] {
    Worker& waiting = at(w);
    if (!waiting.alive || waiting.life != life) return;
    const auto it = waiting.bulk.find(token);
    if (it != waiting.bulk.end() && !it->second.up) close_bulk(w, token, true);
  });
}

void ClusterSimulation::try_pair(const FabricToken& token) {
  std::vector<int> ends;
  for (int w = 0; w < workers(); ++w) {
    if (at(w).bulk.contains(token)) ends.push_back(w);
  }
  if (ends.size() > 2) break_rule("Three nodes have the same token.");
  if (ends.size() != 2 || pair_cuts_.contains(pair_of(ends[0], ends[1]))) return;
  for (const int w : ends) {
    BulkEnd& end = at(w).bulk.at(token);
    if (end.up) continue;
    end.up = true;
    at_worker(w, at(w).life, [this, w, end] {
      with_agent(w, [&](NodeAgent& agent, NodeAgentActions& a) {
        agent.peer_up(end.peer, end.incarnation, now_, a);
      });
    });
  }
}

void ClusterSimulation::close_bulk(int w, const FabricToken& token, bool tell_own) {
  const auto it = at(w).bulk.find(token);
  if (it == at(w).bulk.end()) return;
  const BulkEnd end = it->second;
  at(w).bulk.erase(it);
  if (tell_own) {
    at_worker(w, at(w).life, [this, w, end] {
      with_agent(w, [&](NodeAgent& agent, NodeAgentActions& a) {
        agent.peer_down(end.peer, end.incarnation, "the connection ended", now_, a);
      });
    });
  }
  for (int other = 0; other < workers(); ++other) {
    const auto theirs = at(other).bulk.find(token);
    if (other == w || theirs == at(other).bulk.end() || !theirs->second.up) continue;
    after(delay(), [this, other, token] { close_bulk(other, token, true); });
  }
}

// --- Rules --------------------------------------------------------------------------------------

void ClusterSimulation::check_rules() {
  std::set<NodeId> roles;
  for (const Worker& worker : workers_) {
    if (!worker.alive || worker.agent->state() != NodeAgent::State::kMember) continue;
    // Whoever is past its lease may only not know it yet: it hangs, or its wake is due now.
    if (now_ >= worker.agent->lease_end()) continue;
    if (!roles.insert(worker.agent->id()).second) {
      break_rule("Two live incarnations of " + to_string(worker.agent->id()) + " hold a role.");
    }
    if (!head_) continue;
    for (const auto& gone : head_->gone()) {
      if (gone.incarnation == worker.agent->incarnation() &&
          gone.lost_reason.find("lease") != std::string::npos) {
        break_rule("A lease ended at the head before it did at " + to_string(gone.id) + ".");
      }
    }
  }
}

bool ClusterSimulation::all_serve() const {
  if (!head_ || head_->state() != ClusterState::kReady) return false;
  std::set<NodeId> used;
  for (const auto& shard : head_->placement()->shards) used.insert(shard.device.node);
  for (const auto& layer : head_->placement()->experts) {
    for (const auto& slot : layer.slots) used.insert(slot.device.node);
  }
  std::size_t serving = 0;
  for (const Worker& worker : workers_) {
    if (!worker.alive || worker.agent->state() != NodeAgent::State::kMember) return false;
    const auto member = head_->members().find(worker.agent->id());
    if (member == head_->members().end() ||
        member->second.incarnation != worker.agent->incarnation()) {
      return false;
    }
    if (worker.agent->active() == head_->placement()->version) ++serving;
  }
  return serving == used.size();
}

std::string ClusterSimulation::describe() const {
  const auto ms = std::chrono::duration_cast<std::chrono::milliseconds>(now_ - TimePoint{} - 1h);
  std::string text = "at " + std::to_string(ms.count()) + " ms; ";
  if (head_) {
    text += "head " + std::string(to_string(head_->state())) + ": " + head_->message() + "\n";
    for (const auto& event : head_->events()) {
      text +=
          "  " + std::to_string(event.time_unix_ms) + " " + event.kind + ": " + event.text + "\n";
    }
  } else {
    text += "no head\n";
  }
  for (const Worker& worker : workers_) {
    if (!worker.alive) {
      text += "  dead" + (worker.exit ? ": " + worker.exit->reason : std::string()) + "\n";
      continue;
    }
    text += "  " + to_string(worker.agent->id()) + " state " +
            std::to_string(static_cast<int>(worker.agent->state())) +
            (worker.agent->active() ? " serves " + std::to_string(worker.agent->active()->value)
                                    : std::string()) +
            (worker.hung ? " hung" : "") + (worker.cut ? " cut" : "") + "\n";
  }
  return text;
}

}  // namespace troupe
