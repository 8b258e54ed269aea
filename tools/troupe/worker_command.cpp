#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "actors/base/caf_host.h"
#include "actors/control/caf_system.h"
#include "actors/control/head_link.h"
#include "actors/worker/worker_node.h"
#include "model/model_path.h"
#include "runtime/host.h"
#include "runtime/log.h"
#include "runtime/version.h"
#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/crash_handler.h"
#include "tools/troupe/flags.h"
#include "tools/troupe/nccl_choice.h"
#include "tools/troupe/pull/hub_cache.h"
#include "tools/troupe/service_notifier.h"
#include "tools/troupe/signals.h"
#include "tools/troupe/worker_certificate.h"
#include "tools/troupe/worker_enrolment.h"
#include "tools/troupe/worker_registry.h"

namespace troupe::cli {
namespace {

struct WorkerCommandOptions {
  std::string head, join, model, token;
  std::string log_name = "worker";
  DeviceFlags device;
  NetworkFlags network;
};

std::string join_path_of(const CommonOptions& common, const WorkerCommandOptions& o) {
  return o.join.empty() ? common.state_dir + "/join" : o.join;
}

Result<JoinFile> join_of(const CommonOptions& common, const WorkerCommandOptions& o) {
  const std::string path = join_path_of(common, o);
  auto join = read_join_file(path);
  if (!join.ok() && join.error().code == ErrorCode::kNotFound)
    return not_found(
        "There is no join file " + path +
        "; copy the one that the head wrote (STATE/join there) and name it with --join, or join "
        "with --token.");
  return join;
}

/// Whether it joins by the file of its own state folder: `troupe stop` there ends it.
bool is_own_join(const CommonOptions& common, const WorkerCommandOptions& o) {
  std::error_code failed;
  const std::string own = common.state_dir + "/join";
  return std::filesystem::equivalent(o.join.empty() ? own : o.join, own, failed);
}

/// The one that was named comes first. The file knows the others of its cluster: a standby may be
/// the head by now.
Result<std::vector<HostPort>> heads_of(const WorkerCommandOptions& o, const JoinFile& join) {
  std::vector<HostPort> heads;
  if (!o.head.empty()) {
    auto address = parse_host_port(o.head);
    if (!address.ok()) return invalid_argument("--head: " + address.error().message);
    heads.push_back(std::move(*address));
  }
  for (const auto& text : join.heads) {
    auto address = parse_host_port(text);
    if (!address.ok()) return address.error();
    if (std::ranges::find(heads, *address) == heads.end()) heads.push_back(std::move(*address));
  }
  return heads;
}

/// Ends the process if the worker does not end within a while of having left: a step that takes
/// seconds, or a compute thread that hangs, is not waited for. The head knows already.
class LastResort {
 public:
  ~LastResort() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) thread_.join();
  }

  void arm(int exit_code) {
    thread_ = std::thread([this, exit_code] {
      std::unique_lock lock(mutex_);
      if (changed_.wait_for(lock, kPatience, [&] { return over_; })) return;
      logger().warn("a computation that still runs is not waited for");
      _exit(exit_code);
    });
  }

 private:
  static constexpr Duration kPatience = std::chrono::seconds(2);
  static_assert(kPatience + limits::kStopDeadline < std::chrono::seconds(8));

  std::mutex mutex_;
  std::condition_variable changed_;
  bool over_ = false;  // guarded by mutex_
  std::thread thread_;
};

/// What the node's agent tells, for whoever asks. Thread-safe.
struct Life {
  std::atomic<std::uint32_t> node{0};   ///< 0: it is no member
  std::atomic<std::uint64_t> turns{0};  ///< that it has taken

  void listen(WorkerOptions& options) {
    options.on_life = [this](NodeId id, Incarnation incarnation) {
      report_crashes_as(id, incarnation);
      node = id.value;
    };
    options.on_alive = [this] { ++turns; };
  }
  ServiceNotifier::Source source(const std::string& head) {
    return {[this, head]() -> ServiceNotifier::State {
              const NodeId id{node};
              if (id.value == 0) return {false, "seeks the head at " + head};
              return {true, to_string(id) + " of the cluster at " + head};
            },
            [this, told = std::uint64_t{0}]() mutable {
              const std::uint64_t taken = turns;
              return std::exchange(told, taken) != taken;
            }};
  }
};

/// Until the worker has left the cluster; std::nullopt: it does not do so in time.
std::optional<WorkerNode::Exit> wait_for_end(WorkerNode& worker, const Signals& signals,
                                             const Life& life,
                                             std::optional<WorkerRegistration>& registration,
                                             ServiceNotifier& notifier) {
  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!worker.wait(std::chrono::seconds(1))) {
      if (registration) registration->note(NodeId{life.node}, life.turns);
      if (over) return;
    }
    Signals::nudge();
  });
  bool leaving = false;
  std::optional<WorkerNode::Exit> exit;
  while (!(exit = worker.wait(Duration::zero()))) {
    const auto signal =
        signals.wait(leaving ? std::optional<Duration>(limits::kStopDeadline) : std::nullopt);
    if (signal == SIGTERM || signal == SIGINT) {
      notifier.stop();
      worker.leave("it was told to end");
      leaving = true;
    } else if (!signal) {
      break;  // it did not leave in time
    }
  }
  over = true;
  notifier.stop();
  watcher.join();
  return exit;
}

int run(const CommonOptions& common, const WorkerCommandOptions& o) {
  const Signals signals;
  (void)speak_as(o.log_name, common);
  ServiceNotifier notifier;
  // Files may come later, as on a mount; the folder of a hub's name does not.
  const std::string model = pull::model_folder(o.model);
  if (parse_hub_model(model))
    if (const Status there = check_model_path(model); !there.ok()) return fail(there.error());
  if (!o.token.empty())
    if (const Status enrolled = enrol_worker(o.token, o.head, join_path_of(common, o));
        !enrolled.ok())
      return fail_with(enrolled.error());
  std::optional<WorkerRegistration> registration;
  if (is_own_join(common, o)) registration.emplace(common.state_dir);
  auto join = join_of(common, o);
  if (!join.ok()) return fail(join.error());
  auto heads = heads_of(o, *join);
  if (!heads.ok()) return fail_with(heads.error());
  auto devices = resolve(o.device);
  if (!devices.ok()) return fail_with(devices.error());
  auto tier = resolve_tier(o.device);
  if (!tier.ok()) return fail_with(tier.error());
  auto kind = transport::parse_fabric_kind(o.network.fabric);
  if (!kind.ok()) return fail_with(kind.error());
  auto nccl = choose_nccl(*kind, *devices, o.device.doubles.nccl);
  if (!nccl.ok()) return fail_with(nccl.error());

  LastResort last_resort;  // what comes after it may take its time to end
  auto caf = CafSystem::make();
  if (!caf.ok()) return fail(caf.error());
  WorkerOptions options;
  options.version = kVersion;
  options.head = to_string(heads->front());
  options.model_path = model.empty() ? "" : std::filesystem::absolute(model).string();
  options.devices = std::move(*devices);
  options.expert_tier_memory = *tier;
  Life life;
  life.listen(options);
  transport::FabricOptions fabric;
  fabric.kind = *kind;
  fabric.bind_interface = o.network.bind_interface;
  fabric.host = local_address_towards(heads->front().host, heads->front().port);
  options.fabric = fabric;
  options.nccl = std::move(*nccl);
  if (o.device.doubles.change_worker) o.device.doubles.change_worker(options);
  auto link = make_tcp_link((*caf)->system(), *heads, join->worker);
  if (!link.ok()) return fail(link.error());
  Post post;
  CafHost host((*caf)->system(), post);
  WorkerCertificate certificate(join_path_of(common, o), *join, **link);
  options.on_other_head = [&](const std::string& head) { certificate.learn(head); };
  auto worker = WorkerNode::start(host, std::move(options), std::move(*link));
  if (!worker.ok()) return fail_with(worker.error());
  auto certificate_watch = CertificateWatch::start(certificate.options(), certificate);
  if (!certificate_watch.ok()) return fail(certificate_watch.error());
  // After the libraries that install handlers of their own.
  report_crashes(join_path_of(common, o), o.head);

  notifier.start(life.source(to_string(heads->front())));
  const auto exit = wait_for_end(**worker, signals, life, registration, notifier);
  const int code = exit ? exit->code : kDone;
  if (code != kDone) fail({ErrorCode::kRefused, exit->reason}, code);
  last_resort.arm(code);
  certificate_watch->reset();  // before the link that it uses
  worker->reset();
  return code;
}

}  // namespace

Command worker_command(const Doubles& doubles) {
  auto o = std::make_shared<WorkerCommandOptions>();
  Command command{
      .name = "worker",
      .description = "Run a worker: it joins the head and computes",
      .examples =
          "  troupe worker --head 127.0.0.1:6379\n"
          "  troupe worker --head 10.0.0.1:6379 --join ./join --model /models/DeepSeek-V3\n"
          "  troupe worker --head 10.0.0.1:6379 --token K10...",
      .flags = {{"--head", &o->head,
                 "HOST:PORT of the head, sought before those that the join file names"},
                {"--join", &o->join, "The join file that the head wrote (default: STATE/join)"},
                {"--token", &o->token,
                 "What `troupe token create` printed at the head: makes the join file, which "
                 "serves later starts. In a --config file, `ps` does not show it"},
                {"--model", &o->model, "The checkpoint here (default: the head's path)"},
                {"--log-name", &o->log_name, "What lines of its log begin with", ""}},
      .run = [o](const Call& call) { return run(call.common, *o); },
      .takes_signals = true};
  add_device_flags(command, o->device, doubles);
  add_tier_flag(command, o->device);
  add_network_flags(command, o->network);
  return command;
}

}  // namespace troupe::cli
