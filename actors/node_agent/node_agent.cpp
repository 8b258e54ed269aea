#include "actors/node_agent/node_agent.h"

#include <algorithm>
#include <cassert>

namespace troupe {
namespace {

/// Renews that wait for their answer; a lease has room for far fewer.
constexpr std::size_t kRenewsMax = 64;
/// What a head may offer as a lease.
constexpr std::uint32_t kLeaseMsMin = 100;
constexpr std::uint32_t kLeaseMsMax = 60'000;

std::string range(ProtocolRange r) {
  return std::to_string(r.oldest) + " to " + std::to_string(r.newest);
}

/// The head may say yes another time.
bool passing(ErrorCode code) {
  return code == ErrorCode::kUnavailable || code == ErrorCode::kResourceExhausted ||
         code == ErrorCode::kDeadlineExceeded;
}

}  // namespace

Address NodeAgent::head_address() const {
  return {kHeadNode, head_incarnation_, {ActorKind::kSupervisor, 0}};
}

void NodeAgent::say(std::string text, NodeAgentActions& actions) {
  if (text == said_) return;
  said_ = text;
  actions.log.push_back(std::move(text));
}

void NodeAgent::enter(State state, Duration deadline, TimePoint now) {
  state_ = state;
  deadline_ = now + deadline;
}

// --- Seeking the head ---------------------------------------------------------------------------

void NodeAgent::start(TimePoint now, NodeAgentActions& actions) {
  say("Seeking the head at " + options_.head + ".", actions);
  connect(now, actions);
  wake(actions);
}

void NodeAgent::connect(TimePoint now, NodeAgentActions& actions) {
  actions.connect_head = true;
  // The lane has the same deadline and says why; this one is for when it says nothing.
  enter(State::kConnecting, 2 * limits::kHandshakeDeadline, now);
}

void NodeAgent::seek(const std::string& reason, TimePoint now, NodeAgentActions& actions) {
  say("Waiting for the head at " + options_.head + ": " + reason, actions);
  enter(State::kSeeking, backoff_, now);
  backoff_ = std::min<Duration>(backoff_ * 2, limits::kSeekBackoffMax);
}

void NodeAgent::session_up(TimePoint now, NodeAgentActions& actions) {
  if (state_ == State::kConnecting) enter(State::kGreeting, limits::kHandshakeDeadline, now);
  wake(actions);
}

void NodeAgent::session_down(std::string_view reason, bool foreign, TimePoint now,
                             NodeAgentActions& actions) {
  if (state_ == State::kEnded || state_ == State::kSeeking) {
    wake(actions);
    return;
  }
  if (state_ == State::kLeaving) {
    end(0, "left the cluster", actions);
    return;
  }
  stop_role(actions);
  if (foreign) {
    end(1,
        "The head at " + options_.head + " belongs to another cluster (" + std::string(reason) +
            "); give --join the join file that this head wrote.",
        actions);
  } else {
    seek(std::string(reason), now, actions);
  }
  wake(actions);
}

void NodeAgent::on_greeting(const Envelope& envelope, TimePoint now, NodeAgentActions& actions) {
  greeting_ = std::get<Greeting>(*envelope.message);
  head_incarnation_ = envelope.from.incarnation;
  const auto& protocol = greeting_.protocol;
  if (protocol.oldest > options_.protocol.newest || options_.protocol.oldest > protocol.newest) {
    give_up("The head speaks the protocols " + range(protocol) + " and this worker " +
                range(options_.protocol) + "; run the same version of troupe on both.",
            actions);
    return;
  }
  if (greeting_.numerics && std::find(options_.numerics.begin(), options_.numerics.end(),
                                      *greeting_.numerics) == options_.numerics.end()) {
    give_up("This processor cannot run the cluster's numerics " +
                std::string(to_string(*greeting_.numerics)) +
                "; start the head with --numerics that every worker has.",
            actions);
    return;
  }
  const std::string& path =
      options_.model_path.empty() ? greeting_.model_path : options_.model_path;
  const bool known = path == model_path_ && checkpoint_hash_ == greeting_.checkpoint_hash;
  model_path_ = path;
  if (known) {
    join(now, actions);
  } else {
    inspect(now, actions);
  }
}

void NodeAgent::inspect(TimePoint now, NodeAgentActions& actions) {
  checkpoint_hash_.clear();
  actions.inspect_checkpoint = model_path_;
  enter(State::kInspecting, limits::kHandshakeDeadline, now);
}

void NodeAgent::checkpoint_inspected(const Result<std::string>& hash, TimePoint now,
                                     NodeAgentActions& actions) {
  // A late answer is remembered for the next greeting.
  if (hash) checkpoint_hash_ = *hash;
  if (state_ != State::kInspecting) return;
  if (!hash) {
    give_up("This worker cannot read the checkpoint: " + hash.error().message +
                " If it lies elsewhere on this machine, say where with --model.",
            actions);
  } else if (checkpoint_hash_ != greeting_.checkpoint_hash) {
    give_up("The checkpoint at " + model_path_ +
                " is another one than the head's; give it the same files, or --model with the "
                "folder that has them.",
            actions);
  } else {
    join(now, actions);
  }
  wake(actions);
}

void NodeAgent::join(TimePoint now, NodeAgentActions& actions) {
  Join join;
  join.protocol = options_.protocol;
  join.version = options_.version;
  join.host = options_.host;
  join.pid = options_.pid;
  join.numerics = options_.numerics;
  join.checkpoint_hash = checkpoint_hash_;
  join.devices = options_.devices;
  join.held_id = options_.held_id;
  join.held_cluster = options_.held_cluster;
  join.held_weight_bytes = held_weight_bytes_;
  join.held_shards = held_shards_;
  join.held_experts = held_experts_;
  join.tier_memory = options_.tier_memory;
  join.fabric_address = options_.fabric_address;
  join.fabric_description = options_.fabric_description;
  actions.send(head_address(), std::move(join));
  joined_at_ = now;
  enter(State::kJoining, limits::kHandshakeDeadline, now);
}

void NodeAgent::on_welcome(const Welcome& welcome, TimePoint now, NodeAgentActions& actions) {
  lease_ = std::chrono::milliseconds(welcome.lease_ms);
  const bool sane = welcome.id != kHeadNode && welcome.incarnation.value != 0 &&
                    welcome.lease_ms >= kLeaseMsMin && welcome.lease_ms <= kLeaseMsMax;
  // The lease runs from when the Join was sent, so that it never ends later here than at the head.
  if (!sane || now >= joined_at_ + lease_) {
    actions.close_session = true;
    seek(sane ? "its welcome came too late." : "its welcome makes no sense.", now, actions);
    return;
  }
  state_ = State::kMember;
  id_ = welcome.id;
  incarnation_ = welcome.incarnation;
  lease_end_ = joined_at_ + lease_;
  next_renew_ = joined_at_ + limits::kRenewEvery;
  renew_sequence_ = 0;
  renews_.clear();
  newest_ = {};
  backoff_ = limits::kSeekBackoffMin;
  options_.held_id = id_;
  options_.held_cluster = greeting_.cluster_id;
  actions.joined = {id_, incarnation_, greeting_.cluster_id};
  say("Joined the cluster at " + options_.head + " as " + to_string(id_) +
          "; waiting for its part of the model.",
      actions);
}

void NodeAgent::on_refused(const Refused& refused, TimePoint now, NodeAgentActions& actions) {
  if (passing(refused.code)) {
    actions.close_session = true;
    seek(refused.reason, now, actions);
  } else {
    end(1, "The head at " + options_.head + " refused this worker. " + refused.reason, actions);
  }
}

// --- Ends ---------------------------------------------------------------------------------------

/// No retry helps. The head is told, so that it can count and log it.
void NodeAgent::give_up(const std::string& reason, NodeAgentActions& actions) {
  actions.send(head_address(), Leave{reason});
  end(1, reason, actions);
}

void NodeAgent::end(int code, std::string reason, NodeAgentActions& actions) {
  stop_role(actions);
  state_ = State::kEnded;
  actions.close_session = true;
  actions.exit = {code, std::move(reason)};
}

/// Ends what this node does as a member; its weights stay, and its id to ask for again.
void NodeAgent::stop_role(NodeAgentActions& actions) {
  if (id_ == kHeadNode) return;
  actions.stop_serving = true;
  for (auto& [node, state] : peers_) actions.forget_peers.push_back(state.peer);
  peers_.clear();
  pending_.reset();
  active_.reset();
  active_peers_.clear();
  id_ = {};
  incarnation_ = {};
}

void NodeAgent::leave(std::string_view reason, TimePoint now, NodeAgentActions& actions) {
  if (state_ == State::kEnded || state_ == State::kLeaving) return;
  if (state_ == State::kMember) {
    actions.send(head_address(), Leave{std::string(reason)});
    stop_role(actions);
    enter(State::kLeaving, limits::kLeaveDeadline, now);
  } else {
    end(0, std::string(reason), actions);
  }
  wake(actions);
}

// --- Membership ---------------------------------------------------------------------------------

/// False when the lease has just ended: nothing that came since counts.
bool NodeAgent::keep_lease(TimePoint now, NodeAgentActions& actions) {
  if (state_ != State::kMember || now < lease_end_) return true;
  stop_role(actions);
  actions.close_session = true;
  seek("the lease ended, so this worker has stopped serving.", now, actions);
  return false;
}

void NodeAgent::refuse(const Envelope& envelope, std::string reason, NodeAgentActions& actions) {
  ++refused_messages_;
  say("A message was refused: " + reason, actions);
  actions.send(envelope.from,
               Undeliverable{envelope.to, static_cast<std::uint32_t>(envelope.message->index()), 0,
                             refused(std::move(reason))});
}

void NodeAgent::on(const Envelope& envelope, TimePoint now, NodeAgentActions& actions) {
  assert(envelope.message);
  const Message& message = *envelope.message;
  const bool alive = keep_lease(now, actions);
  if (state_ == State::kEnded || state_ == State::kLeaving || !alive) {
    wake(actions);
    return;
  }
  if (std::holds_alternative<Undeliverable>(message)) {
    // The head has no such member: it also closes the session, which says the same.
  } else if (std::holds_alternative<PeerPing>(message)) {
    const auto it = peers_.find(envelope.from.node);
    if (it != peers_.end() && it->second.peer.incarnation == envelope.from.incarnation)
      it->second.heard = now;
  } else if (envelope.from.node != kHeadNode) {
    refuse(envelope, "only the head speaks to a NodeAgent.", actions);
  } else if (std::holds_alternative<Greeting>(message) && state_ == State::kGreeting) {
    on_greeting(envelope, now, actions);
  } else if (envelope.from.incarnation != head_incarnation_) {
    refuse(envelope, "it is of an earlier life of the head.", actions);
  } else if (const auto* no = std::get_if<Refused>(&message); no && state_ != State::kMember) {
    on_refused(*no, now, actions);
  } else if (const auto* yes = std::get_if<Welcome>(&message); yes && state_ == State::kJoining) {
    on_welcome(*yes, now, actions);
  } else if (state_ != State::kMember) {
    refuse(envelope, "this worker is no member now.", actions);
  } else if (envelope.to.node != id_ || envelope.to.incarnation != incarnation_) {
    refuse(envelope, "it is for an earlier life of this worker.", actions);
  } else {
    on_member_message(envelope, actions);
  }
  wake(actions);
}

void NodeAgent::on_member_message(const Envelope& envelope, NodeAgentActions& actions) {
  const Message& message = *envelope.message;
  if (const auto* renewed = std::get_if<Renewed>(&message)) {
    on_renewed(*renewed);
  } else if (const auto* stop = std::get_if<Stop>(&message)) {
    say("The head stops the cluster: " + stop->reason, actions);
    actions.send(head_address(), Leave{"the cluster stops"});
    end(0, "the cluster stops", actions);
  } else if (!on_version_message(envelope, actions)) {
    refuse(envelope, "a NodeAgent does not take that message.", actions);
  }
}

void NodeAgent::on_renewed(const Renewed& renewed) {
  const auto it = renews_.find(renewed.sequence);
  if (it == renews_.end()) return;  // answered before
  lease_end_ = std::max(lease_end_, it->second + lease_);
  renews_.erase(renews_.begin(), std::next(it));
}

void NodeAgent::renew(TimePoint now, const NodeProgress& progress, NodeAgentActions& actions) {
  next_renew_ = now + limits::kRenewEvery;
  if (!progress.devices_alive) {
    say("A device makes no progress; the lease is not renewed.", actions);
    return;
  }
  renews_[++renew_sequence_] = now;
  if (renews_.size() > kRenewsMax) renews_.erase(renews_.begin());
  actions.send(head_address(), Renew{renew_sequence_, progress.devices, progress.replicas});
}

void NodeAgent::devices_changed(TimePoint now, const NodeProgress& progress,
                                NodeAgentActions& actions) {
  if (keep_lease(now, actions) && state_ == State::kMember) renew(now, progress, actions);
  wake(actions);
}

void NodeAgent::on_wake(TimePoint now, const NodeProgress& progress, NodeAgentActions& actions) {
  keep_lease(now, actions);
  if (state_ != State::kMember) {
    held_weight_bytes_ = progress.held_weight_bytes;
    held_shards_ = progress.held_shards;
    held_experts_ = progress.held_experts;
  }
  switch (state_) {
    case State::kSeeking:
      if (now >= deadline_) connect(now, actions);
      break;
    case State::kConnecting:
    case State::kGreeting:
    case State::kInspecting:
    case State::kJoining:
      if (now < deadline_) break;
      actions.close_session = true;
      seek(state_ == State::kInspecting ? "reading the checkpoint's headers takes too long."
                                        : "it does not answer.",
           now, actions);
      break;
    case State::kMember:
      if (now >= next_renew_) {
        ping_peers(now, actions);
        renew(now, progress, actions);
      }
      if (!progress.counts.empty()) actions.send(head_address(), ExpertCounts{progress.counts});
      break;
    case State::kLeaving:
      if (now >= deadline_) end(0, "left the cluster", actions);
      break;
    case State::kEnded:
      break;
  }
  wake(actions);
}

void NodeAgent::wake(NodeAgentActions& actions) const {
  if (state_ == State::kEnded) return;
  actions.wake_at(state_ == State::kMember ? std::min(next_renew_, lease_end_) : deadline_);
}

}  // namespace troupe
