#include "actors/worker/worker_machine.h"

#include <algorithm>
#include <utility>

namespace troupe {
namespace {

/// Their proofs are told together, so that the head reads the same meanwhile.
constexpr std::size_t kPiecesTold = 32;
/// A build that nobody wants any more says nothing of its end.
constexpr auto kLook = std::chrono::milliseconds(10);
/// How often it shows that it is alive, whatever it waits for.
constexpr auto kShowEvery = std::chrono::seconds(1);

/// What the version wants in memory. Experts that this node alone is to have come first: nobody can
/// stand in for them.
WeightPart part_of(const VersionWork& work) {
  std::map<ExpertKey, std::size_t> copies;
  for (const auto& layer : work.placement.experts)
    for (const auto& slot : layer.slots) ++copies[{layer.layer, slot.expert}];
  WeightPart part{work.placement.numerics, work.shards, {}, work.tier, tensor_ranks(work.engine)};
  for (const bool alone : {true, false})
    for (const auto& layer : work.experts) {
      LayerExperts some{layer.layer, {}};
      for (const auto& slot : layer.slots)
        if ((copies[{layer.layer, slot.expert}] == 1) == alone) some.slots.push_back(slot);
      if (!some.slots.empty()) part.experts.push_back(std::move(some));
    }
  return part;
}

std::set<std::uint32_t> with_own_memory(const std::vector<Device*>& devices) {
  std::set<std::uint32_t> found;
  for (std::uint32_t i = 0; i < devices.size(); ++i)
    if (devices[i]->has_own_memory()) found.insert(i);
  return found;
}

/// A processor that stands still is a hung node. An accelerator that does has a deadline, which
/// takes it out and leaves the node; until then the node's other devices speak for it.
bool alive(const std::vector<Device*>& devices, TimePoint now) {
  bool moves = false, waits = false, hangs = false;
  for (Device* device : devices) {
    if (!device->failed().empty()) continue;
    if (device->makes_progress(now, limits::kLease / 2))
      moves = true;
    else
      (device->has_own_memory() ? waits : hangs) = true;
  }
  return !hangs && (moves || !waits);
}

void erase_one(std::multiset<Address>& set, const Address& address) {
  if (const auto it = set.find(address); it != set.end()) set.erase(it);
}

}  // namespace

WorkerMachine::WorkerMachine(NodeAgentOptions options, NodeContext context)
    : agent_(std::move(options)),
      context_(std::move(context)),
      weights_({agent_.options().tier_memory, with_own_memory(context_.devices)}) {}

// --- News ---------------------------------------------------------------------------------------

void WorkerMachine::on(HeadUp up, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(up, now, a); });
}
void WorkerMachine::on(HeadDown down, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(down, now, a); });
}
void WorkerMachine::on(LeaveCluster leave, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(leave, now, a); });
}
void WorkerMachine::on(PeerUp up, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(up, now, a); });
}
void WorkerMachine::on(PeerDown down, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(down, now, a); });
}
void WorkerMachine::on(PeerCorrupt peer, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(peer, now, a); });
}

void WorkerMachine::on(DeviceFailed failed, TimePoint now, Effects& effects) {
  effects.add(
      LogLine{"device " + std::to_string(failed.device) +
                  " has failed and computes no more: " + context_.devices[failed.device]->failed(),
              LogLine::Level::kError});
  weights_.drop_of_device(failed.device);
  ask(now, effects, [&](AgentEffects& a) { agent_.devices_changed(now, progress(now), a); });
}

void WorkerMachine::on(LinkResult result, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.on(std::move(result), now, a); });
}

void WorkerMachine::on(RoutesSettled settled, TimePoint, Effects&) {
  if (serving_) serving_->on(settled);  // end_turn() looks whether it was the last
}

void WorkerMachine::on(CheckpointInspected inspected, TimePoint now, Effects& effects) {
  // Before the agent joins with what is held. What was still being read has ended: a WeightSource
  // does one thing after the other. The weights of a member that serves are not touched by an
  // answer that came twice.
  if (inspected.checkpoint.ok() && !serving_) {
    weights_.use(*inspected.checkpoint);
    agent_.holds(weights_.held());
  }
  ask(now, effects, [&](AgentEffects& a) { agent_.on(inspected, now, a); });
}

void WorkerMachine::on(Ended ended, TimePoint, Effects&) {
  erase_one(ending_, ended.actor);
  if (loading_) erase_one(loading_->awaited, ended.actor);
}

void WorkerMachine::on_wake(TimePoint now, Effects& effects) {
  NodeProgress news = progress(now);
  if (news.devices_alive) effects.add(ShowAlive{});
  if (agent_.state() == NodeAgent::State::kMember && now >= next_second_) {
    next_second_ = now + std::chrono::seconds(1);
    effects.add(ProbeDevices{});
    if (auto counts = context_.counter->take()) news.counts = std::move(counts->layers);
  }
  ask(now, effects, [&](AgentEffects& a) { agent_.on_wake(now, news, a); });
}

NodeProgress WorkerMachine::progress(TimePoint now) {
  NodeProgress out;
  out.devices_alive = alive(context_.devices, now);
  for (Device* device : context_.devices) {
    DeviceHealth health = device->health();
    const float busy = device->take_utilization(now);
    out.devices.push_back({device->memory_used(), health.utilization.value_or(busy),
                           device->probe_us(), device->failed(), device->experts_read(),
                           std::move(health)});
  }
  if (serving_) out.replicas = serving_->reports();
  if (serving_ && context_.lane) out.traffic = context_.lane->traffic();
  if (serving_ && context_.meter) out.measuring = context_.meter->progress();
  if (context_.source) out.proofs = context_.source->proofs();
  if (agent_.state() != NodeAgent::State::kMember) out.held = weights_.held();
  return out;
}

/// What other parts of the turn have led to.
void WorkerMachine::end_turn(TimePoint now, Effects& effects) {
  if (serving_)
    if (const auto version = serving_->take_settled())
      ask(now, effects, [&](AgentEffects& a) { agent_.settled(*version, now, a); });
  note_ending();
  if (loading_ && loading_->state == Loading::State::kWaiting) {
    const bool building = !superseded_.expired();
    if ((loading_->awaited.empty() && !building) || now >= loading_->deadline)
      begin_reading(now, effects);
    else
      effects.wake_at(building ? std::min(loading_->deadline, now + kLook) : loading_->deadline);
  }
  free_garbage(effects);
  if (const auto wake = agent_.next_wake()) effects.wake_at(std::min(*wake, now + kShowEvery));
}

/// What it has claimed goes with it; a build that runs has it until it ends.
void WorkerMachine::forget_load() {
  if (loading_ && loading_->preparation) superseded_ = loading_->preparation;
  loading_.reset();
}

void WorkerMachine::free_garbage(Effects& effects) {
  if (Garbage garbage = weights_.take_garbage(); !garbage.empty())
    effects.add(FreeWeights{std::move(garbage)});
}

void WorkerMachine::note_ending() {
  if (!serving_) return;
  for (const Address& actor : serving_->take_ending()) ending_.insert(actor);
}

// --- What the agent wants -----------------------------------------------------------------------

void WorkerMachine::carry_out(JoinedCluster joined, TimePoint, Effects& effects) {
  weights_.forget_versions();
  serving_.emplace(context_, Serving::Self{joined.id, joined.incarnation, router()});
  effects.add(std::move(joined));
}

/// What is being read is read on: the next membership may want it.
void WorkerMachine::carry_out(StopServing stop, TimePoint, Effects& effects) {
  serving_->stop(effects);
  note_ending();
  serving_.reset();
  forget_load();
  weights_.drop_doubted(std::nullopt);
  effects.add(LeaveAddress{stop.id, stop.incarnation});
}

/// As when it stops; but what is in force here stays, with its memory.
void WorkerMachine::carry_out(SuspendServing, TimePoint, Effects& effects) {
  serving_->suspend(effects);
  forget_load();
}

void WorkerMachine::carry_out(ResumeServing, TimePoint, Effects& effects) {
  weights_.tell_again();
  serving_->resume(router(), effects);
}

/// end_turn() frees it.
void WorkerMachine::carry_out(LetWeightsGo, TimePoint, Effects&) { weights_.let_go(); }

void WorkerMachine::carry_out(WorkerExit exit, TimePoint, Effects& effects) {
  effects.add(CancelReading{});
  effects.add(std::move(exit));
}

void WorkerMachine::carry_out(PeerLost lost, TimePoint, Effects& effects) {
  serving_->member_lost(lost, effects);
}
void WorkerMachine::carry_out(PeerDown down, TimePoint, Effects& effects) {
  serving_->peer_down(down, effects);
}
void WorkerMachine::carry_out(PeerUp up, TimePoint, Effects& effects) {
  serving_->peer_up(up, effects);
}
void WorkerMachine::carry_out(AvoidDevices avoid, TimePoint, Effects& effects) {
  serving_->avoid(std::move(avoid.devices), effects);
}

void WorkerMachine::carry_out(DiscardTensors discard, TimePoint, Effects&) {
  weights_.discard({discard.tensors.begin(), discard.tensors.end()}, agent_.active());
}

void WorkerMachine::carry_out(DropVersion drop, TimePoint, Effects& effects) {
  forget_load();
  serving_->drop_pending(drop.next.get(), effects);
}

void WorkerMachine::carry_out(ActivateVersion activate, TimePoint, Effects& effects) {
  serving_->activate(activate.version, effects);
}

void WorkerMachine::carry_out(RetireVersion retire, TimePoint, Effects& effects) {
  serving_->retire(retire.version, effects);
  weights_.give_up_after(retire.version);
  weights_.retire(retire.version);
  ReadOrder order = weights_.missing_tier(retire.version);
  if (order.experts.empty()) return;
  order.model_path = agent_.model_path();
  effects.add(ReadWeights{std::move(order)});
}

// --- Loading ------------------------------------------------------------------------------------

/// Reading begins when actors of earlier versions have given back what they held: end_turn() looks
/// whether they have. A job that runs may be a whole step.
void WorkerMachine::carry_out(LoadVersion load, TimePoint now, Effects&) {
  note_ending();
  forget_load();
  const TimePoint deadline = now + limits::kActorStopDeadline + limits::kStepDeadline / 2;
  loading_ =
      Loading{std::move(load.work), Loading::State::kWaiting, ending_, deadline, {}, nullptr};
}

void WorkerMachine::begin_reading(TimePoint now, Effects& effects) {
  for (const Address& actor : std::exchange(loading_->awaited, {}))
    erase_one(ending_, actor);  // it was waited for once
  loading_->state = Loading::State::kReading;
  const VersionWork& work = *loading_->work;
  weights_.begin(work.version, part_of(work), agent_.active());
  report_progress(now, effects);
  if (!loading_) return;  // the lease has just ended
  auto memory = serving_->reserve(work, *weights_.sizes());
  if (!memory.ok()) return fail_load(memory.error(), now, effects);
  loading_->memory = std::move(*memory);
  free_garbage(effects);  // a device needs its memory for what is read
  ReadOrder order = weights_.missing(work.version);
  order.model_path = work.model_path;
  effects.add(ReadWeights{std::move(order)});
}

void WorkerMachine::report_progress(TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.load_progress(weights_.progress(), now, a); });
}

void WorkerMachine::on(PieceRead piece, TimePoint now, Effects& effects) {
  if (!weights_.take(std::move(piece))) return;
  report_progress(now, effects);
  if (loading_ && ++loading_->untold >= kPiecesTold) tell_proofs(now, effects);
}

void WorkerMachine::tell_proofs(TimePoint now, Effects& effects) {
  loading_->untold = 0;
  for (TensorProofs& proofs : weights_.take_untold())
    ask(now, effects, [&](AgentEffects& a) { agent_.proofs(std::move(proofs), now, a); });
}

void WorkerMachine::on(PartRead read, TimePoint now, Effects& effects) {
  if (read.tier) {
    if (!read.status.ok())
      effects.add(
          LogLine{"the second tier of experts could not be read: " + read.status.error().message,
                  LogLine::Level::kWarning});
    return;
  }
  if (!loading_ || loading_->state != Loading::State::kReading ||
      loading_->work->version != read.version)
    return;
  if (!read.status.ok()) return fail_load(read.status.error(), now, effects);
  if (!weights_.complete(read.version)) {
    ReadOrder rest = weights_.missing(read.version);
    if (!rest.copies())
      return fail_load(unavailable("Some of the weights that were read were lost on their way."),
                       now, effects);
    rest.model_path = loading_->work->model_path;
    return effects.add(ReadWeights{std::move(rest)});
  }
  auto planned = serving_->plan(loading_->work, weights_.sizes(), weights_.part(read.version),
                                std::move(loading_->memory));
  if (!planned.ok()) return fail_load(planned.error(), now, effects);
  loading_->state = Loading::State::kBuilding;
  loading_->preparation = *planned;
  effects.add(BuildPart{std::move(*planned)});
}

/// If it was taken back meanwhile, or the membership ended, its actors must not start: nobody would
/// ever stop them, and what they claim is for another version.
void WorkerMachine::on(PartBuilt built, TimePoint now, Effects& effects) {
  if (!loading_ || loading_->preparation != built.preparation) return;
  const PlacementVersion version = loading_->work->version;
  Status started = built.status;
  if (started.ok()) started = serving_->adopt(*built.preparation, effects);
  if (!started.ok()) return fail_load(started.error(), now, effects);
  tell_proofs(now, effects);
  loading_.reset();
  ask(now, effects, [&](AgentEffects& a) { agent_.loaded(version, now, a); });
}

void WorkerMachine::fail_load(const Error& error, TimePoint now, Effects& effects) {
  const PlacementVersion version = loading_->work->version;
  loading_.reset();
  ask(now, effects, [&](AgentEffects& a) { agent_.load_failed(version, error, now, a); });
}

// --- Proofs -------------------------------------------------------------------------------------

void WorkerMachine::on(FilesChanged changed, TimePoint now, Effects& effects) {
  effects.add(LogLine{changed.why + ": it is opened afresh", LogLine::Level::kWarning});
  TensorProofs news;
  news.changed = std::move(changed.why);
  ask(now, effects, [&](AgentEffects& a) { agent_.proofs(std::move(news), now, a); });
}

void WorkerMachine::on(ProofsRead read, TimePoint now, Effects& effects) {
  ask(now, effects, [&](AgentEffects& a) { agent_.proofs(std::move(read.proofs), now, a); });
}

/// It may have been let go meanwhile; but what was computed with it is still there.
void WorkerMachine::on(CopyDiffers differs, TimePoint now, Effects& effects) {
  weights_.drop(differs.piece);
  ask(now, effects, [&](AgentEffects& a) { agent_.copy_differs(differs.proof, now, a); });
}

void WorkerMachine::on(CopiesProven, TimePoint now, Effects& effects) {
  agent_.holds(weights_.held());
  ask(now, effects, [&](AgentEffects& a) { agent_.copies_proven(now, a); });
}

std::string WorkerMachine::violation() const {
  const bool member = agent_.state() == NodeAgent::State::kMember;
  if ((member || agent_.suspended()) != serving_.has_value())
    return "its actors do not fit whether it is a member";
  if (loading_ && agent_.loading() != loading_->work->version)
    return "a version is loaded that the agent does not want";
  if (loading_ && loading_->state != Loading::State::kWaiting && !loading_->awaited.empty())
    return "actors are waited for though the load goes on";
  if (std::string found = agent_.violation(); !found.empty()) return found;
  if (std::string found = weights_.violation(); !found.empty()) return found;
  return serving_ ? serving_->violation() : std::string();
}

}  // namespace troupe
