#include "actors/worker/worker_node.h"

#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <mutex>
#include <span>
#include <utility>

#include "actors/device/cpu_device.h"
#include "actors/device/gpu_watch.h"
#include "actors/worker/fabric_lane.h"
#include "actors/worker/file_source.h"
#include "actors/worker/model_factory.h"
#include "actors/worker/nccl_lane.h"
#include "actors/worker/worker.h"
#include "runtime/host.h"
#include "runtime/log.h"

namespace troupe {

namespace {

/// What the device computes with its instructions. One that computes wrongly is offered to nobody.
Result<std::vector<Numerics>> prove(CpuDevice& device) {
  auto proven = device.prove(device.numerics());
  const std::string name = "Device " + std::to_string(device.options().index) + " of this machine";
  if (!proven.ok())
    return Error{proven.error().code, name + " cannot be used: " + proven.error().message +
                                          (proven.error().code == ErrorCode::kResourceExhausted
                                               ? "."
                                               : ". Replace it, or leave it out.")};
  for (const std::string& note : proven->notes) logger().warn("{}: {}", name, note);
  return std::move(proven->numerics);
}

}  // namespace

struct WorkerNode::Impl {
  explicit Impl(CafHost& outer) : host(std::make_unique<CafHost>(outer.system(), outer.post())) {}
  ~Impl();

  Status start(const WorkerOptions& options, std::unique_ptr<HeadLink> head_link);
  void watch_gpus(const std::string& nvml);
  void on_exit(const WorkerExit& exit);

  std::mutex mutex;
  std::condition_variable ended_changed;
  std::optional<Exit> ended;  // guarded by mutex

  std::unique_ptr<HeadLink> link;
  std::unique_ptr<BulkLane> lane;
  std::vector<std::unique_ptr<CpuDevice>> devices;
  std::unique_ptr<nccl::Node> nccl;  ///< of the devices' shards, and of `by_nccl`
  NcclLane* by_nccl = nullptr;       ///< the lane, if it is one
  std::unique_ptr<ModelFactory> factory;
  std::unique_ptr<FileSource> source;
  std::unique_ptr<CafHost> host;  ///< of this node's actors
  std::unique_ptr<Worker> worker;
  std::unique_ptr<GpuWatch> gpu_watch;  ///< of `devices`
};

Status WorkerNode::Impl::start(const WorkerOptions& options, std::unique_ptr<HeadLink> head_link) {
  WorkerSetup setup;
  std::vector<CpuDevice*> cpus;
  std::vector<FileSource::Home> homes;
  int threads = 0;
  std::vector<Numerics> numerics(all_numerics().begin(), all_numerics().end());
  for (const auto& device : options.devices) {
    devices.push_back(std::make_unique<CpuDevice>(device));
    // What a GPU computes with is packed by this machine's processors.
    threads += device.kind == "cuda" ? host_processors() : device.threads;
    cpus.push_back(devices.back().get());
    if (const Status opened = cpus.back()->open(); !opened.ok())
      return Error{opened.error().code,
                   "Device " + std::to_string(device.index) +
                       " of this machine cannot be used: " + opened.error().message + "."};
    const auto proven = prove(*cpus.back());
    if (!proven.ok()) return proven.error();
    std::erase_if(numerics, [&](Numerics n) { return !std::ranges::count(*proven, n); });
    setup.around.devices.push_back(cpus.back());
    homes.push_back({device.index, device.numa_node, cpus.back()->accelerator()});
  }
  watch_gpus(options.nvml);
  if (options.fabric) {
    auto made = FabricLane::make(*options.fabric);
    if (!made.ok()) return made.error();
    lane = std::move(*made);
  }
  if (options.nccl) {
    nccl::NodeOptions with = *options.nccl;
    with.on_stuck = [this](const std::string& why) { on_exit({1, why}); };
    auto opened = nccl::Node::open(std::move(with));
    if (!opened.ok()) return opened.error();
    nccl = std::move(*opened);
    if (lane) {
      auto over = std::make_unique<NcclLane>(std::move(lane), *nccl);
      by_nccl = over.get();
      lane = std::move(over);
    }
  }
  link = std::move(head_link);
  source = std::make_unique<FileSource>(host->post(), std::clamp(threads, 1, host_processors()),
                                        std::move(homes));
  factory = std::make_unique<ModelFactory>(std::move(cpus), options.on_tokens);

  setup.agent.version = options.version;
  setup.agent.host = host_name();
  setup.agent.pid = getpid();
  setup.agent.head = options.head;
  setup.agent.numerics = numerics;
  setup.agent.model_path = options.model_path;
  setup.agent.tier_memory = options.expert_tier_memory;
  setup.around.link = link.get();
  setup.around.lane = lane.get();
  setup.around.source = source.get();
  setup.around.nccl = nccl.get();
  setup.around.on_exit = [this](const WorkerExit& exit) { on_exit(exit); };
  setup.around.on_life = options.on_life;
  setup.around.on_alive = options.on_alive;
  setup.around.on_other_head = options.on_other_head;
  setup.factory = factory.get();
  worker = std::make_unique<Worker>(*host, std::move(setup));
  return {};
}

/// Without the driver's library they compute all the same; only what they are like is not known.
void WorkerNode::Impl::watch_gpus(const std::string& nvml) {
  std::vector<GpuWatch::Gpu> gpus;
  for (const auto& device : devices)
    if (const std::string& bus_id = device->options().bus_id; !bus_id.empty())
      gpus.push_back({bus_id,
                      [d = device.get()](const DeviceHealth& health) { d->set_health(health); },
                      [d = device.get()](const std::string& why) { d->fail(why); }});
  if (gpus.empty()) return;
  auto library = Nvml::open(nvml);
  if (!library.ok()) {
    logger().warn("temperature and memory errors of GPUs are not watched: {}",
                  library.error().message);
    return;
  }
  gpu_watch = std::make_unique<GpuWatch>(std::move(*library), std::move(gpus));
}

void WorkerNode::Impl::on_exit(const WorkerExit& exit) {
  std::lock_guard lock(mutex);
  if (!ended) ended = Exit{exit.code, exit.reason};
  ended_changed.notify_all();
}

WorkerNode::Impl::~Impl() {
  gpu_watch.reset();
  // No step is waited for: nobody wants its result any more.
  for (const auto& device : devices) device->interrupt();
  // The actors first: what the link or the lane still has to say is then dropped. The agent before
  // the others, so that it starts no more of them.
  if (worker) {
    worker->end();
    if (!host->wait_ended(worker->agent().address, limits::kActorStopDeadline))
      logger().error("the worker's agent does not end");
  }
  host.reset();  // ends the others, and waits until what they held on the devices is free
  source.reset();
  if (by_nccl) by_nccl->end();
  nccl.reset();  // what its shards and the lane had of it is closed
  lane.reset();
  link.reset();
}

WorkerNode::WorkerNode(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
WorkerNode::~WorkerNode() = default;

Result<std::unique_ptr<WorkerNode>> WorkerNode::start(CafHost& host, WorkerOptions options,
                                                      std::unique_ptr<HeadLink> link) {
  auto impl = std::make_unique<Impl>(host);
  if (const Status started = impl->start(options, std::move(link)); !started.ok())
    return started.error();
  return std::unique_ptr<WorkerNode>(new WorkerNode(std::move(impl)));
}

void WorkerNode::leave(const std::string& reason) { impl_->worker->leave(reason); }

std::optional<WorkerNode::Exit> WorkerNode::wait(Duration patience) {
  std::unique_lock lock(impl_->mutex);
  impl_->ended_changed.wait_for(lock, patience, [&] { return impl_->ended.has_value(); });
  return impl_->ended;
}

}  // namespace troupe
