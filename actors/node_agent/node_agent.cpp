#include "actors/node_agent/node_agent.h"

#include <algorithm>
#include <utility>

#include "actors/node_agent/messages.h"
#include "runtime/standby_limits.h"

namespace troupe {
namespace {

/// What a head may offer as a lease.
constexpr std::uint32_t kLeaseMsMin = 100;
constexpr std::uint32_t kLeaseMsMax = 60'000;

}  // namespace

void NodeAgent::enter(State state, Duration deadline, TimePoint now) {
  if (state_ == State::kMember) lease_.left(now);
  state_ = state;
  deadline_ = now + deadline;
}

// --- Seeking the head ---------------------------------------------------------------------------

void NodeAgent::connect(TimePoint now, Effects& effects) {
  effects.add(ConnectHead{term_.granted(now)});
  // The lane has the same deadline and says why; this one is for when it says nothing.
  enter(State::kConnecting, 2 * limits::kHandshakeDeadline, now);
}

void NodeAgent::seek(const std::string& reason, TimePoint now, Effects& effects) {
  voice_.say("Waiting for the head: " + reason, effects);
  enter(State::kSeeking, backoff_, now);
  backoff_ = std::min<Duration>(backoff_ * 2, limits::kSeekBackoffMax);
}

void NodeAgent::on(const HeadUp& up, TimePoint now, Effects&) {
  voice_.bulk = up.bulk;
  if (!up.head.empty()) options_.head = up.head;
  if (state_ == State::kConnecting) enter(State::kGreeting, limits::kHandshakeDeadline, now);
}

void NodeAgent::on(const HeadDown& down, TimePoint now, Effects& effects) {
  if (state_ == State::kEnded || state_ == State::kSeeking || state_ == State::kProving) return;
  if (state_ == State::kLeaving) return end(0, "left the cluster", effects);
  suspend_role(effects);
  if (down.foreign)
    end(1, down.reason, effects);
  else
    seek(down.reason, now, effects);
}

void NodeAgent::on(const Greeting& greeting, const Envelope& envelope, TimePoint now,
                   Effects& effects) {
  if (!listens(now, effects)) return;
  if (envelope.from.node != kHeadNode || state_ != State::kGreeting) {
    if (for_member(envelope, effects))
      voice_.refuse(envelope, "a NodeAgent does not take that message.", effects);
    return;
  }
  if (term_.outdated(greeting.cluster_id, envelope.from.incarnation, now)) {
    voice_.head = envelope.from.incarnation;
    if (term_.tells(voice_.head))
      voice_.tell_head(
          Leave{"it follows a newer head of this cluster. If none runs, this one's state folder is "
                "an older copy: the worker joins when it is started again."},
          effects);
    effects.add(CloseHead{});
    return seek("the head there is older than the one that this worker follows; if none follows "
                "that, start this worker again.",
                now, effects);
  }
  const bool same_place = greeting_.model_place == greeting.model_place;
  if (!same_place) inspecting_.clear();  // what that finds is of the old place
  greeting_ = greeting;
  voice_.head = envelope.from.incarnation;
  const auto& protocol = greeting_.protocol;
  if (common_protocol(protocol, options_.protocol) == 0)
    return give_up("The head speaks the protocols " + to_string(protocol) + " and this worker " +
                       to_string(options_.protocol) + "; run the same version of troupe on both.",
                   effects);
  if (greeting_.numerics && std::find(options_.numerics.begin(), options_.numerics.end(),
                                      *greeting_.numerics) == options_.numerics.end())
    return give_up("This processor cannot run the cluster's numerics " +
                       std::string(to_string(*greeting_.numerics)) +
                       "; start the head with --numerics that every worker has.",
                   effects);
  const std::string& path =
      options_.model_path.empty() ? greeting_.model_path : options_.model_path;
  const bool known =
      same_place && path == model_path_ && checkpoint_hash_ == greeting_.checkpoint_hash;
  model_path_ = path;
  if (known) return join(now, effects);
  stop_role(effects);  // it is of another checkpoint, perhaps
  inspect(now, effects);
}

void NodeAgent::on(const Standing& standing, const Envelope& envelope, TimePoint now,
                   Effects& effects) {
  if (state_ != State::kGreeting && state_ != State::kPledged) return;
  const auto pledge = term_.pledge(standing, now);
  if (!pledge) {
    effects.add(CloseHead{});
    return seek(standing.reason, now, effects);
  }
  voice_.say("The standby at the other end asks to become the head; this worker grants it.",
             effects);
  effects.add(SendAs{{voice_.self(), envelope.from, message_of(*pledge)}});
  enter(State::kPledged, limits::kPledge, now);
}

/// An inspection that takes longer than a session may goes on without one.
void NodeAgent::inspect(TimePoint now, Effects& effects) {
  checkpoint_hash_.clear();
  if (inspecting_ != model_path_) effects.add(InspectCheckpoint{model_path_});
  inspecting_ = model_path_;
  enter(State::kInspecting, limits::kHandshakeDeadline, now);
}

void NodeAgent::on(const CheckpointInspected& inspected, TimePoint now, Effects& effects) {
  // A late answer is remembered for the next greeting, if that names the same folder.
  const auto& checkpoint = inspected.checkpoint;
  if (inspected.folder != inspecting_) return;
  inspecting_.clear();
  if (inspected.folder != model_path_) return;
  if (checkpoint.ok()) checkpoint_hash_ = checkpoint->hash;
  if (state_ != State::kInspecting) return;
  if (!checkpoint.ok() && passing(checkpoint.error().code)) {
    effects.add(CloseHead{});
    seek("this worker cannot read the checkpoint now: " + checkpoint.error().message, now, effects);
  } else if (!checkpoint.ok())
    give_up("This worker cannot read the checkpoint: " + checkpoint.error().message +
                (checkpoint.error().message.ends_with('.') ? "" : ".") +
                " If it lies elsewhere on this machine, say where with --model.",
            effects);
  else if (checkpoint_hash_ != greeting_.checkpoint_hash)
    give_up("The checkpoint at " + model_path_ +
                " is another one than the head's; give it the same files, or --model with the "
                "folder that has them.",
            effects);
  else
    join(now, effects);
}

void NodeAgent::join(TimePoint now, Effects& effects) {
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
  join.held_weight_bytes = held_.bytes;
  join.held_shards = held_.shards;
  join.held_experts = held_.experts;
  join.tier_memory = options_.tier_memory;
  join.fabric_address = voice_.bulk.address;
  join.fabric_description = voice_.bulk.description;
  join.fabric_port = voice_.bulk.port;
  join.nccl = options_.nccl;
  if (suspended()) join.held_role = versions_.held_role();
  voice_.tell_head(std::move(join), effects);
  lease_.asked(now);
  enter(State::kJoining, limits::kHandshakeDeadline, now);
}

void NodeAgent::on(const Welcome& welcome, const Envelope& envelope, TimePoint now,
                   Effects& effects) {
  if (!listens(now, effects)) return;
  if (state_ != State::kJoining) {
    if (for_member(envelope, effects))
      voice_.refuse(envelope, "a NodeAgent does not take that message.", effects);
    return;
  }
  if (!from_head(envelope, effects)) return;
  const Duration lease = std::chrono::milliseconds(welcome.lease_ms);
  const bool sane = welcome.id != kHeadNode && welcome.incarnation.value != 0 &&
                    welcome.lease_ms >= kLeaseMsMin && welcome.lease_ms <= kLeaseMsMax;
  if (!sane) {
    effects.add(CloseHead{});
    return seek("its welcome makes no sense.", now, effects);
  }
  state_ = State::kMember;
  term_.joined(greeting_.cluster_id, voice_.head);
  begin_role({welcome.id, welcome.incarnation}, effects);
  lease_.begin(lease, std::chrono::seconds(welcome.keep_for_s));
  backoff_ = limits::kSeekBackoffMin;
  options_.held_id = voice_.id;
  options_.held_cluster = greeting_.cluster_id;
  keep_lease(now, effects);  // the head may have stood still before it answered
}

void NodeAgent::on(const Refused& refused, const Envelope& envelope, TimePoint now,
                   Effects& effects) {
  if (!listens(now, effects)) return;
  if (state_ == State::kMember) {
    if (for_member(envelope, effects))
      voice_.refuse(envelope, "a NodeAgent does not take that message.", effects);
    return;
  }
  if (!from_head(envelope, effects)) return;
  if (passing(refused.code)) {
    effects.add(CloseHead{});
    seek(refused.reason, now, effects);
  } else {
    end(1, "The head at " + options_.head + " refused this worker. " + refused.reason, effects);
  }
}

// --- Membership ---------------------------------------------------------------------------------

/// False when the membership has just ended with the lease: nothing that came since counts.
bool NodeAgent::keep_lease(TimePoint now, Effects& effects) {
  if (state_ != State::kMember || !lease_.over(now)) return true;
  if (!lease_.waits()) {
    lease_.wait(now);
    effects.add(HoldMail{voice_.id, voice_.incarnation});
    voice_.say("The lease has ended; nothing is sent until the head has renewed it.", effects);
  }
  if (!lease_.lost(now)) return true;
  suspend_role(effects);
  effects.add(CloseHead{});
  seek("the lease was not renewed, so this worker has stopped serving.", now, effects);
  return false;
}

void NodeAgent::on(const Renewed& renewed, const Envelope& envelope, TimePoint now,
                   Effects& effects) {
  if (!listens(now, effects) || !for_member(envelope, effects)) return;
  lease_.renewed(renewed.sequence);
  if (!lease_.waits() || lease_.over(now)) return;
  lease_.go_on();
  effects.add(EndHold{voice_.id, voice_.incarnation});
  voice_.say("The head has renewed the lease; this worker goes on.", effects);
}

bool NodeAgent::listens(TimePoint now, Effects& effects) {
  return keep_lease(now, effects) && state_ != State::kEnded && state_ != State::kLeaving;
}

bool NodeAgent::from_head(const Envelope& envelope, Effects& effects) {
  if (envelope.from.node != kHeadNode) {
    voice_.refuse(envelope, "only the head speaks to a NodeAgent.", effects);
    return false;
  }
  if (envelope.from.incarnation != voice_.head) {
    voice_.refuse(envelope, "it is of an earlier life of the head.", effects);
    return false;
  }
  return true;
}

bool NodeAgent::for_member(const Envelope& envelope, Effects& effects) {
  if (!from_head(envelope, effects)) return false;
  if (state_ != State::kMember) {
    voice_.refuse(envelope, "this worker is no member now.", effects);
    return false;
  }
  if (envelope.to.node != voice_.id || envelope.to.incarnation != voice_.incarnation) {
    voice_.refuse(envelope, "it is for an earlier life of this worker.", effects);
    return false;
  }
  return true;
}

void NodeAgent::on(const Undeliverable&, const Envelope&, TimePoint now, Effects& effects) {
  keep_lease(now, effects);
}

void NodeAgent::on(const PeerUp& up, TimePoint now, Effects& effects) {
  if (!keep_lease(now, effects)) return;
  links_.up(up, now, effects);
  versions_.report_if_loaded(voice_, links_, effects);
}

void NodeAgent::on(const PeerDown& down, TimePoint now, Effects& effects) {
  if (keep_lease(now, effects)) links_.down(down, versions_.needs(down.node), voice_, effects);
}

void NodeAgent::on(const PeerCorrupt& peer, TimePoint now, Effects& effects) {
  if (keep_lease(now, effects)) links_.distrust(peer, voice_, effects);
}

void NodeAgent::take(const Load& load, const Envelope&, Effects& effects) {
  versions_.load(load, {options_.devices.size(), model_path_, checkpoint_hash_}, voice_, links_,
                 effects);
}

void NodeAgent::take(const Activate& activate, const Envelope& envelope, Effects& effects) {
  versions_.activate(envelope, activate.version, voice_, effects);
}

void NodeAgent::take(const Retire& retire, const Envelope& envelope, Effects& effects) {
  versions_.retire(envelope, retire.version, voice_, links_, effects);
}

void NodeAgent::take(const MemberLost& lost, const Envelope&, Effects& effects) {
  if (!links_.lose(lost, voice_, effects)) return;
  voice_.say(lost.reason, effects);
  versions_.note_lost(lost.node);
  versions_.lose(lost.node, effects);
}

void NodeAgent::take(const Connect& connect, const Envelope&, Effects& effects) {
  links_.connect_again(connect.peer, voice_, effects);
}

void NodeAgent::take(const Avoid& avoid, const Envelope&, Effects& effects) {
  effects.add(AvoidDevices{{avoid.devices.begin(), avoid.devices.end()}});
}

void NodeAgent::take(const Prove& prove, const Envelope&, Effects& effects) {
  effects.add(ProveTensors{prove.tensors});
}

void NodeAgent::take(const Discard& discard, const Envelope&, Effects& effects) {
  versions_.doubt();
  effects.add(DiscardTensors{discard.tensors});
}

void NodeAgent::take(const Successor& successor, const Envelope&, Effects& effects) {
  term_.heard(successor);
  if (!successor.address.empty()) effects.add(SeekAlso{successor.address});
  voice_.tell_head(SuccessorKnown{successor.number}, effects);
}

void NodeAgent::take(const Stop& stop, const Envelope&, Effects& effects) {
  voice_.say("The head stops this worker: " + stop.reason, effects);
  voice_.tell_head(Leave{"the cluster stops"}, effects);
  end(0, "the cluster stops", effects);
}

void NodeAgent::renew(TimePoint now, const NodeProgress& progress, Effects& effects) {
  if (!progress.devices_alive) {
    lease_.skip(now);
    return voice_.say("A device makes no progress; the lease is not renewed.", effects);
  }
  voice_.tell_head(Renew{lease_.renew(now), progress.devices, progress.replicas, progress.proofs,
                         lease_.heard()},
                   effects);
}

void NodeAgent::load_progress(const LoadProgress& progress, TimePoint now, Effects& effects) {
  if (keep_lease(now, effects)) versions_.progress(progress, voice_, effects);
}

void NodeAgent::loaded(PlacementVersion version, TimePoint now, Effects& effects) {
  if (keep_lease(now, effects)) versions_.loaded(version, voice_, links_, effects);
}

void NodeAgent::load_failed(PlacementVersion version, Error error, TimePoint now,
                            Effects& effects) {
  if (keep_lease(now, effects)) versions_.load_failed(version, std::move(error), voice_, effects);
}

void NodeAgent::settled(PlacementVersion version, TimePoint now, Effects& effects) {
  if (keep_lease(now, effects)) versions_.settled(version, voice_, effects);
}

// --- Proofs -------------------------------------------------------------------------------------

void NodeAgent::proofs(TensorProofs proofs, TimePoint now, Effects& effects) {
  if (keep_lease(now, effects) && state_ == State::kMember)
    voice_.tell_head(std::move(proofs), effects);
}

void NodeAgent::copy_differs(const ProofFailed& proof, TimePoint now, Effects& effects) {
  if (state_ == State::kEnded || state_ == State::kLeaving) return;
  effects.add(LogLine{"A copy of the tensor " + proof.tensor + " has changed in memory: " +
                          proof.reason + " Nothing is served before all copies are proven.",
                      LogLine::Level::kError});
  if (state_ == State::kProving) return;
  if (keep_lease(now, effects) && state_ == State::kMember) voice_.tell_head(proof, effects);
  stop_role(effects);
  effects.add(CloseHead{});
  effects.add(ProveCopies{});
  enter(State::kProving, limits::kProveCopiesDeadline, now);
}

void NodeAgent::copies_proven(TimePoint now, Effects& effects) {
  if (state_ != State::kProving) return;
  voice_.say("The other copies in memory are what was loaded.", effects);
  connect(now, effects);
}

void NodeAgent::devices_changed(TimePoint now, const NodeProgress& progress, Effects& effects) {
  if (keep_lease(now, effects) && state_ == State::kMember) renew(now, progress, effects);
}

void NodeAgent::on_wake(TimePoint now, const NodeProgress& progress, Effects& effects) {
  if (sleep_.overslept(now)) links_.slept(now);
  keep_lease(now, effects);
  if (state_ != State::kMember) held_ = progress.held;
  if (const auto end = lets_go_at(); end && now >= *end) let_go(effects);
  switch (state_) {
    case State::kStarting:
      voice_.say("Seeking the head at " + options_.head + ".", effects);
      connect(now, effects);
      break;
    case State::kSeeking:
      if (now >= deadline_) connect(now, effects);
      break;
    case State::kConnecting:
    case State::kGreeting:
    case State::kInspecting:
    case State::kPledged:
    case State::kJoining:
      if (now < deadline_) break;
      effects.add(CloseHead{});
      seek(state_ == State::kInspecting ? "the checkpoint's headers are still being read."
           : state_ == State::kPledged  ? "the standby has not become the head."
                                        : "it does not answer.",
           now, effects);
      break;
    case State::kProving:
      if (now >= deadline_) end(1, "The copies in memory could not be proven in time.", effects);
      break;
    case State::kMember:
      if (lease_.due(now)) {
        links_.watch(now, progress.traffic, voice_, effects);
        renew(now, progress, effects);
      }
      links_.measuring().watch(now, progress.measuring, voice_, effects);
      if (!progress.counts.empty()) voice_.tell_head(ExpertCounts{progress.counts}, effects);
      break;
    case State::kLeaving:
      if (now >= deadline_) end(0, "left the cluster", effects);
      break;
    case State::kEnded:
      break;
  }
  sleep_.expect(next_wake());
}

std::optional<TimePoint> NodeAgent::next_wake() const {
  if (state_ == State::kEnded) return std::nullopt;
  if (state_ == State::kMember) return lease_.next_wake();
  return std::min(deadline_, lets_go_at().value_or(deadline_));
}

/// Not while a head may be saying that it goes on, nor while it is being looked at.
std::optional<TimePoint> NodeAgent::lets_go_at() const {
  switch (state_) {
    case State::kSeeking:
    case State::kConnecting:
    case State::kGreeting:
    case State::kInspecting:
    case State::kPledged:
      return lease_.keep_until();
    case State::kStarting:
    case State::kProving:
    case State::kJoining:
    case State::kMember:
    case State::kLeaving:
    case State::kEnded:
      return std::nullopt;
  }
  return std::nullopt;
}

void NodeAgent::end_turn(TimePoint, Effects& effects) const {
  if (const auto wake = next_wake()) effects.wake_at(*wake);
}

std::string NodeAgent::violation() const {
  const bool member = state_ == State::kMember;
  if (member != (voice_.id != NodeId{})) return "its id does not fit whether it is a member";
  if (suspended() && member) return "what a member serves is suspended";
  if (!member && ((versions_.active() && !suspended()) || versions_.loading()))
    return "a node that is no member has versions";
  if (std::string found = lease_.violation(); !found.empty()) return found;
  if (std::string found = links_.violation(voice_); !found.empty()) return found;
  return versions_.violation();
}

}  // namespace troupe
