#include "tests/sim/worker_box.h"

#include "actors/layer_shard/layer_shard.h"
#include "actors/layer_shard/shard_hands.h"
#include "tests/sim/world.h"

namespace troupe::sim {

// --- The process --------------------------------------------------------------------------------

WorkerBox::Life::Life(WorkerBox& box, NodeAgentOptions options)
    : host(box.world_, box.number_ + 1),
      devices(box.make_devices(host)),
      disk(host, box.disk),
      link(host, box.world_.control, box.world_.head.machines()),
      lane(host, box.world_.bulk),
      factory(host),
      worker(host, setup(box, std::move(options))) {}

/// What jobs and actors hold goes before what it was made with.
WorkerBox::Life::~Life() {
  host.clear();
  for (const auto& device : devices) device->clear();
}

WorkerSetup WorkerBox::Life::setup(WorkerBox& box, NodeAgentOptions options) {
  WorkerSetup setup;
  setup.agent = std::move(options);
  for (const auto& device : devices) setup.around.devices.push_back(device.get());
  setup.around.link = &link;
  setup.around.lane = &lane;
  setup.around.source = &disk;
  setup.around.on_exit = [&box](const WorkerExit& exit) { box.exited(exit); };
  setup.factory = &factory;
  return setup;
}

std::vector<std::unique_ptr<SimDevice>> WorkerBox::make_devices(SimHost& host) const {
  std::vector<std::unique_ptr<SimDevice>> devices;
  for (int d = 0; d < world_.shape().devices; ++d) {
    Device::Options options;
    options.index = static_cast<std::uint32_t>(d);
    options.memory_total = world_.shape().memory_of(number_);
    devices.push_back(std::make_unique<SimDevice>(host, options));
  }
  return devices;
}

NodeAgentOptions WorkerBox::options() {
  NodeAgentOptions options;
  options.host = "host-" + std::to_string(number_);
  options.pid = 1000 * (number_ + 1) + static_cast<int>(lives_.size());
  options.head = "head:6379";
  options.numerics = {Numerics::kReference, Numerics::kBf16};
  options.tier_memory = world_.shape().tier_memory;
  if (world_.loop.chance(50) && held_id_ != NodeId{}) {  // it had a disk
    options.held_id = held_id_;
    options.held_cluster = "cluster";
  }
  return options;
}

void WorkerBox::start() {
  if (alive()) return;
  exit_.reset();
  lives_.push_back(std::make_unique<Life>(*this, options()));
  life_ = lives_.back().get();
  world_.note_change();
}

void WorkerBox::kill() {
  if (!alive()) return;
  if (const WorkerMachine* dying = machine(); dying && dying->agent().id() != NodeId{})
    held_id_ = dying->agent().id();
  life_->host.kill();
  world_.bulk.died(life_->lane);
  world_.control.died(life_->link);
  life_ = nullptr;
  world_.note_change();
}

void WorkerBox::hang() {
  if (alive()) life_->host.hang();
}

void WorkerBox::go_on(bool clock_stood) {
  if (!hung()) return;
  if (clock_stood) life_->host.forget_hang();
  life_->host.go_on();
}

/// Called in the agent's turn: the process ends after it.
void WorkerBox::exited(const WorkerExit& exit) {
  world_.loop.after({}, [this, exit, life = life_] {
    if (life_ != life) return;
    kill();
    exit_ = exit;
    world_.exited(number_, exit);
  });
}

// --- Its devices --------------------------------------------------------------------------------

void WorkerBox::set_stuck(bool stuck) {
  if (!alive()) return;
  for (const auto& device : life_->devices) device->set_stuck(stuck);
}

void WorkerBox::set_slow(bool slow) {
  if (!alive()) return;
  for (const auto& device : life_->devices) device->set_slow(slow);
}

void WorkerBox::fail_device(int device) {
  if (alive()) life_->devices[static_cast<std::size_t>(device)]->fail("a kernel threw");
}

bool WorkerBox::device_broken(int device) const {
  if (!alive()) return false;
  const SimDevice& looked_at = *life_->devices[static_cast<std::size_t>(device)];
  return looked_at.wrong() != 0 || !looked_at.failed().empty();
}

WorkerBox::Wrong WorkerBox::break_kernels(int device) {
  if (!alive()) return nullptr;
  SimDevice& broken = *life_->devices[static_cast<std::size_t>(device)];
  broken.break_kernels();
  return [&broken, &host = life_->host] { return host.alive() && broken.failed().empty(); };
}

WorkerBox::Wrong WorkerBox::flip_bit() {
  if (!alive()) return nullptr;
  const auto piece = life_->disk.flip();
  if (piece.expired()) return nullptr;
  return [piece, &host = life_->host] { return host.alive() && !piece.expired(); };
}

// --- Looking at it ------------------------------------------------------------------------------

const WorkerMachine* WorkerBox::machine() const {
  if (!alive()) return nullptr;
  return life_->host.find<WorkerMachine, WorkerHands>(life_->worker.agent().address);
}

const NodeAgent* WorkerBox::member() const {
  const WorkerMachine* found = machine();
  if (!found || found->agent().state() != NodeAgent::State::kMember ||
      life_->host.now() >= found->agent().lease_end())
    return nullptr;
  return &found->agent();
}

std::string WorkerBox::describe() const {
  std::string text = "  worker " + std::to_string(number_) + ": ";
  if (!alive()) return text + "dead" + (exit_ ? ": " + exit_->reason : std::string()) + "\n";
  const WorkerMachine* found = machine();
  if (!found) return text + "begins\n";
  const NodeAgent& agent = found->agent();
  text += to_string(agent.id()) + "#" + std::to_string(agent.incarnation().value) + " state " +
          std::to_string(static_cast<int>(agent.state()));
  if (agent.active()) text += " serves " + std::to_string(agent.active()->value);
  if (agent.loading()) text += " loads " + std::to_string(agent.loading()->value);
  if (hung()) text += " hung";
  for (const auto& device : life_->devices)
    text += std::string(device->stuck() ? " stuck" : "") + (device->slow() ? " slow" : "");
  if (found->serving())
    for (const ReplicaReport& report : found->serving()->reports())
      text += "; replica " + std::to_string(report.replica) + " runs " +
              std::to_string(report.running) + ", waits " + std::to_string(report.waiting);
  for (const auto& [address, mailbox] : life_->host.actors())
    if (const auto* shard = life_->host.find<LayerShard, ShardHands>(address))
      text += "; " + to_string(address) + " has " + std::to_string(shard->steps()) + " steps";
  return text + "\n";
}

}  // namespace troupe::sim
