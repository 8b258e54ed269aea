#include <algorithm>

#include "actors/api/cluster.h"
#include "actors/api/operation.h"
#include "actors/base/caf_host.h"
#include "actors/control/caf_system.h"
#include "actors/control/head_link.h"
#include "actors/head/head_node.h"
#include "actors/worker/worker_node.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "runtime/version.h"

namespace troupe {
namespace {

/// Head and worker in this process; they talk by pointer.
class LocalCluster : public Cluster {
 public:
  ~LocalCluster() override {
    endings()->run();
    if (head_) {
      head_->stop("The program ends.");
      head_->wait(limits::kStopDeadline);
    }
    worker_.reset();
    head_.reset();
  }

  Status open(const LocalClusterOptions& options) {
    if (const Status checked = check(options.engine); !checked.ok()) return checked;
    if (options.threads < 0 || options.threads > limits::kThreadsMax)
      return invalid_argument("threads must be from 0 (all processors) to " +
                              std::to_string(limits::kThreadsMax) + ".");
    auto caf = CafSystem::make();
    if (!caf.ok()) return caf.error();
    caf_ = std::move(*caf);
    host_ = std::make_unique<CafHost>(caf_->system(), post_);

    HeadOptions head;
    head.version = kVersion;
    head.engine = options.engine;
    head.engine.min_devices = 1;
    head.cluster_id = "in-process";
    head.incarnation = Incarnation{1};
    auto started = HeadNode::start(*host_, std::move(head));
    if (!started.ok()) return started.error();
    head_ = std::move(*started);

    WorkerOptions worker;
    worker.version = kVersion;
    worker.head = "this process";
    Device::Options device;
    device.threads = options.threads > 0 ? options.threads : host_processors();
    device.cpu_family = options.cpu_family;
    device.memory_total = options.device_memory > 0 ? options.device_memory : host_memory_bytes();
    worker.devices = options.devices.empty() ? std::vector{device} : options.devices;
    auto joined = WorkerNode::start(*host_, std::move(worker), head_->make_local_link());
    if (!joined.ok()) return joined.error();
    worker_ = std::move(*joined);
    return wait_ready();
  }

  Result<std::string> status_json() override { return head_->status_json(); }
  Status subscribe(std::function<void(const ClusterEvent&)> listener) override {
    head_->subscribe(std::move(listener));
    return {};
  }
  GenerationService& service() override { return head_->service(); }
  caf::actor_system& system() override { return caf_->system(); }

 private:
  /// Loading takes as long as the disk needs; what cannot succeed ends the wait.
  Status wait_ready() {
    while (!head_->wait_ready(std::chrono::milliseconds(20))) {
      if (const auto trouble = head_->trouble()) return *trouble;
      if (const auto exit = worker_->wait(Duration::zero())) return unavailable(exit->reason);
    }
    return {};
  }

  Result<std::string> operate(
      const std::function<Status(ClientSession&)>& ask,
      const std::function<void(const OperationProgress&)>& on_progress) override {
    return follow_operation(
        [&](ClientSession::Events events) {
          return ClientSession::open(head_->make_local_link(), "this process", "embedding program",
                                     limits::kHandshakeDeadline, std::move(events));
        },
        ask, on_progress);
  }

  std::unique_ptr<CafSystem> caf_;
  Post post_;
  std::unique_ptr<CafHost> host_;
  std::unique_ptr<HeadNode> head_;
  std::unique_ptr<WorkerNode> worker_;
};

}  // namespace

Result<std::unique_ptr<Cluster>> Cluster::start(const LocalClusterOptions& options) {
  auto cluster = std::make_unique<LocalCluster>();
  if (const Status opened = cluster->open(options); !opened.ok()) return opened.error();
  return std::unique_ptr<Cluster>(std::move(cluster));
}

}  // namespace troupe
