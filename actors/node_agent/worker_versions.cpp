#include <future>
#include <map>
#include <utility>

#include "actors/node_agent/worker_impl.h"
#include "runtime/log.h"

namespace troupe {

namespace {

/// What the version wants in memory. Experts that this node alone is to have come first: nobody can
/// stand in for them.
WeightPart part_of(const NodeAgentActions::Work& work) {
  std::map<ExpertKey, std::size_t> copies;
  for (const auto& layer : work.placement.experts)
    for (const auto& slot : layer.slots) ++copies[{layer.layer, slot.expert}];
  WeightPart part{work.placement.numerics, work.shards, {}, work.tier};
  for (const bool alone : {true, false})
    for (const auto& layer : work.experts) {
      LayerExperts some{layer.layer, {}};
      for (const auto& slot : layer.slots)
        if ((copies[{layer.layer, slot.expert}] == 1) == alone) some.slots.push_back(slot);
      if (!some.slots.empty()) part.experts.push_back(std::move(some));
    }
  return part;
}

}  // namespace

/// Reads the weights on the loader's thread; start_actors() and finish_load() follow.
void WorkerNode::Impl::begin_load(NodeAgentActions::Work work) {
  if (!serving) {
    const Address router{kHeadNode, head.incarnation, {ActorKind::kRouter, 0}};
    serving = std::make_unique<Serving>(NodeContext{system, post, devices, counter},
                                        Serving::Self{agent->id(), agent->incarnation(), router});
    if (!avoided.empty()) serving->avoid(avoided);
  }
  for (auto& actor : serving->take_ending()) ending.push_back(std::move(actor));
  {
    std::lock_guard lock(mutex);
    for (auto& actor : std::exchange(ending, {})) unsettled.push_back(std::move(actor));
  }
  auto loading = std::make_shared<Loading>();
  loading->version = work.version;
  loading->incarnation = agent->incarnation();
  loading->work = std::move(work);
  loader.run([this, loading, active = agent->active()](const std::atomic<bool>& cancelled) {
    settle_devices(cancelled);
    loading->status = read_weights(*loading, active, cancelled);
    if (cancelled) return;
    (void)handle.call([this, loading] { start_actors(loading); });
  });
}

Status WorkerNode::Impl::read_weights(Loading& loading, std::optional<PlacementVersion> active,
                                      const std::atomic<bool>& cancelled) {
  const WeightPart part = part_of(loading.work);
  // What is in memory already needs no file.
  if (!checkpoint || weights->lacks(part)) {
    if (const Status opened = open_checkpoint(loading.work.model_path); !opened.ok()) return opened;
    if (checkpoint->hash() != loading.work.checkpoint_hash) {
      checkpoint_doubted = true;
      return corrupt("The checkpoint at " + loading.work.model_path +
                     " has changed since this worker joined; restore its files, or restart the "
                     "cluster with the new ones.");
    }
  }
  loading.model = checkpoint->config();
  auto loaded = weights->load(
      *checkpoint, loading.version, part, active,
      {load_threads, cancelled, [&](std::uint64_t done, std::uint64_t total) {
         const LoadProgress news{loading.version, done, total};
         tell([news](NodeAgent& a, auto& actions) { a.load_progress(news, now(), actions); });
       }});
  if (!loaded.ok()) {
    checkpoint_doubted = true;
    return loaded.error();
  }
  loading.weights = std::move(*loaded);
  return {};
}

/// Says what is to be started, and has its slow part done on the loader's thread, so that leases
/// are renewed meanwhile.
void WorkerNode::Impl::start_actors(const LoadingPtr& loading) {
  if (!wanted(*loading)) return;
  if (!loading->status.ok()) return fail_load(loading, loading->status.error());
  auto planned =
      serving->plan(std::move(loading->work), loading->model, std::move(loading->weights));
  if (!planned.ok()) return fail_load(loading, planned.error());
  loading->preparation = std::move(*planned);
  loader.run([this, loading](const std::atomic<bool>& cancelled) {
    loading->status = loading->preparation->build();
    if (cancelled) return;
    (void)handle.call([this, loading] { finish_load(loading); });
  });
}

void WorkerNode::Impl::finish_load(const LoadingPtr& loading) {
  if (!wanted(*loading)) return;
  Status started = loading->status;
  if (started.ok()) started = serving->adopt(std::move(*loading->preparation));
  if (!started.ok()) return fail_load(loading, started.error());
  NodeAgentActions actions;
  agent->loaded(loading->version, now(), actions);
  carry_out(actions);
}

/// False when it was taken back, or the membership ended, meanwhile: its actors must not start,
/// since nobody would ever stop them and what they claim is for another version.
bool WorkerNode::Impl::wanted(const Loading& loading) const {
  return serving && agent->incarnation() == loading.incarnation &&
         agent->loading() == loading.version;
}

void WorkerNode::Impl::fail_load(const LoadingPtr& loading, const Error& error) {
  NodeAgentActions actions;
  agent->load_failed(loading->version, error, now(), actions);
  carry_out(actions);
}

void WorkerNode::Impl::activate(PlacementVersion version) {
  serving->activate(version, [this, version, life = agent->incarnation()] {
    tell([version, life](NodeAgent& a, auto& actions) {
      if (a.incarnation() == life) a.settled(version, now(), actions);
    });
  });
}

void WorkerNode::Impl::retire(PlacementVersion version) {
  serving->retire(version);
  cleaner.run([this, version](const std::atomic<bool>&) { weights->retire(version); });
  if (agent->loading()) return;  // its own retirement brings the tier up to date
  loader.run([this, version](const std::atomic<bool>& cancelled) {
    if (!checkpoint) return;
    const Status kept = weights->load_tier(*checkpoint, version, {load_threads, cancelled, {}});
    if (kept.ok() || cancelled) return;
    checkpoint_doubted = true;
    spdlog::warn("the second tier of experts could not be read: {}", kept.error().message);
  });
}

void WorkerNode::Impl::stop_serving() {
  if (!serving) return;
  serving->stop();
  for (auto& actor : serving->take_ending()) ending.push_back(std::move(actor));
  serving.reset();
}

Status WorkerNode::Impl::open_checkpoint(const std::string& folder) {
  if (checkpoint && !checkpoint_doubted && checkpoint->folder() == folder) return {};
  auto opened = Checkpoint::open(folder);
  if (!opened.ok()) return opened.error();
  checkpoint = std::move(*opened);
  checkpoint_doubted = false;
  return {};
}

/// Waits, within bounds, until what earlier versions held on the devices has been given back.
/// A job that runs may be a whole step; its caches are given back after it.
void WorkerNode::Impl::settle_devices(const std::atomic<bool>& cancelled) {
  std::vector<ActorHandle> before;
  {
    std::lock_guard lock(mutex);
    before = unsettled;
  }
  if (before.empty()) return;
  for (const auto& actor : before) actor.stop_and_wait(limits::kActorStopDeadline);
  const TimePoint deadline = now() + limits::kStepDeadline / 2;
  for (const auto& device : devices) {
    auto settled = std::make_shared<std::promise<void>>();
    auto future = settled->get_future();
    if (!device->submit([settled] { settled->set_value(); }).ok()) continue;
    while (!cancelled && now() < deadline)
      if (future.wait_for(std::chrono::milliseconds(20)) == std::future_status::ready) break;
  }
  if (cancelled) return;  // the next load waits for them
  std::lock_guard lock(mutex);
  unsettled.erase(unsettled.begin(),
                  unsettled.begin() + static_cast<std::ptrdiff_t>(before.size()));
}

}  // namespace troupe
