#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <set>
#include <thread>
#include <vector>

#include "actors/device/device_kind.h"
#include "runtime/byte_size.h"
#include "runtime/host.h"
#include "runtime/log.h"
#include "runtime/numerics.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/head_process.h"
#include "tools/troupe/nccl_choice.h"
#include "tools/troupe/signals.h"
#include "tools/troupe/standby_files.h"
#include "transport/fabric/fabric.h"

namespace troupe::cli {
namespace {

struct UpOptions {
  HeadFlags head;
  DeviceFlags device;
  int workers = 2;
  bool no_respawn = false;
};

/// Looks that often, after the head has won or lost a node, until all children are its nodes.
constexpr Duration kLook = std::chrono::seconds(2);

/// The worker processes of `up`: started, watched, started again after they died or were lost.
class Children {
 public:
  /// A worker of each command.
  Children(std::vector<std::vector<std::string>> commands, bool respawn) : respawn_(respawn) {
    for (auto& command : commands) {
      Slot& slot = slots_.emplace_back();
      slot.name = "worker-" + std::to_string(slots_.size());
      slot.command = std::move(command);
    }
  }
  ~Children() { end_all(); }

  void start_all() {
    for (Slot& slot : slots_) start(slot);
  }

  /// Takes note of those that have ended, and starts new ones for them after a while.
  void reap() {
    int status = 0;
    for (pid_t pid; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
      for (auto& slot : slots_) {
        if (slot.pid != pid) continue;
        slot.pid = -1;
        if (stopping_) break;
        if (WIFEXITED(status) && WEXITSTATUS(status) == 0) {
          logger().info("{} (process {}) has left in order", slot.name, pid);
          slot.left = true;
          break;
        }
        logger().warn("{} (process {}) has ended ({}){}", slot.name, pid, describe(status),
                      respawn_ ? "; a new one is being started" : "");
        // One that lived for a while is replaced at once; one that keeps dying, ever later.
        if (now() - slot.started > kSteady) slot.backoff = kBackoffMin, slot.refusals = 0;
        slot.refusals = WIFEXITED(status) ? slot.refusals + 1 : 0;
        slot.start_at = now() + slot.backoff;
        slot.backoff = std::min(slot.backoff * 2, kBackoffMax);
      }
    }
  }

  /// Ends those that the head had and has lost for a while: they hang, or it would have them again.
  /// `nodes` are the processes that it has now. Where this process stood still, too, the while
  /// begins again. False: there is no need to look again.
  bool end_lost(const std::set<std::int64_t>& nodes) {
    bool again = false;
    const bool watched = now() < looked_ + 3 * kLook;
    looked_ = now();
    for (Slot& slot : slots_) {
      if (!watched) slot.lost_at.reset();
      const bool has = slot.pid > 0 && nodes.contains(slot.pid);
      if (has) slot.had = true;
      if (has || !slot.had || slot.pid <= 0 || !respawn_ || stopping_) {
        slot.lost_at.reset();
        continue;
      }
      again = true;
      if (!slot.lost_at) slot.lost_at = now();
      if (now() < *slot.lost_at + kLostFor) continue;
      logger().warn("{} (process {}) was lost, is still there and is ended", slot.name, slot.pid);
      kill(slot.pid, SIGKILL);
    }
    return again;
  }

  /// Starts what is due; tells how long until the next is.
  std::optional<Duration> start_due() {
    std::optional<Duration> next;
    if (!respawn_ || stopping_) return next;
    for (auto& slot : slots_) {
      if (slot.pid > 0 || slot.left) continue;
      const Duration left = slot.start_at - now();
      if (left <= Duration::zero())
        start(slot);
      else
        next = next ? std::min(*next, left) : left;
    }
    return next;
  }

  /// One that gave up by itself as often as it was started: what it lacks will not come.
  Status useless() const {
    for (const Slot& slot : slots_)
      if (slot.refusals >= kRefusalsMax)
        return refused(slot.name + " has ended " + std::to_string(slot.refusals) +
                       " times before the cluster could serve; its last words are above.");
    return {};
  }

  bool all_ended() const {
    for (const auto& slot : slots_)
      if (slot.pid > 0) return false;
    return true;
  }

  /// Nobody is replaced any more. Any thread.
  void stopping() { stopping_ = true; }

  /// Within bounds: first as they wish, then SIGTERM, then SIGKILL.
  void end_all() {
    stopping_ = true;
    const TimePoint started = now();
    bool told = false, killed = false;
    while (!all_ended()) {
      reap();
      const Duration waited = now() - started;
      if (waited > std::chrono::milliseconds(1000) && !told) told = true, signal_all(SIGTERM);
      if (waited > std::chrono::milliseconds(2500) && !killed) killed = true, signal_all(SIGKILL);
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
  }

 private:
  static constexpr Duration kBackoffMin = std::chrono::milliseconds(50);
  static constexpr Duration kBackoffMax = std::chrono::seconds(10);
  static constexpr Duration kSteady = std::chrono::seconds(10);
  static constexpr Duration kLostFor = std::chrono::seconds(15);
  static constexpr int kRefusalsMax = 3;

  struct Slot {
    std::string name;
    std::vector<std::string> command;
    pid_t pid = -1;
    TimePoint started{}, start_at{};
    Duration backoff = kBackoffMin;
    int refusals = 0;   ///< in a row: it ended by itself, soon
    bool left = false;  ///< it was drained: it is not wanted any more
    bool had = false;   ///< the head has had this process
    std::optional<TimePoint> lost_at = {};
  };

  void start(Slot& slot) {
    std::vector<char*> argv;
    for (auto& word : slot.command) argv.push_back(word.data());
    std::string name_flag = "--log-name=" + slot.name;
    argv.push_back(name_flag.data());
    argv.push_back(nullptr);
    slot.started = now();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      // Should this process be killed, its workers end too.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != parent) _exit(kFailed);
      setpgid(0, 0);  // Ctrl-C reaches the head alone, which ends them in order
      // Signals stay blocked: one that comes before the worker's main() waits for it.
      close_range(STDERR_FILENO + 1, ~0U, 0);  // files and sockets of the head are no worker's
      execv(argv[0], argv.data());
      _exit(kFailed);
    }
    slot.pid = pid;
    slot.had = false;
    if (pid < 0) slot.start_at = now() + slot.backoff;
  }

  void signal_all(int signal) const {
    for (const auto& slot : slots_)
      if (slot.pid > 0) kill(slot.pid, signal);
  }

  static std::string describe(int status) {
    if (WIFSIGNALED(status)) return "signal " + std::to_string(WTERMSIG(status));
    return "exit code " + std::to_string(WEXITSTATUS(status));
  }

  std::vector<Slot> slots_;
  const bool respawn_;
  std::atomic<bool> stopping_{false};
  TimePoint looked_{};
};

/// The processes of the nodes that the head has now; none: it does not say.
std::optional<std::set<std::int64_t>> processes_of(const HeadNode& head) {
  const auto status = nlohmann::json::parse(head.status_json());
  if (!status.contains("nodes")) return std::nullopt;
  std::set<std::int64_t> processes;
  for (const auto& node : status.at("nodes"))
    if (node.at("state") != "lost") processes.insert(node.at("pid").get<std::int64_t>());
  return processes;
}

/// A worker's share of this machine, unless the flags say otherwise.
using Share = std::vector<Device::Options>;

Result<std::vector<Share>> shares_of(const UpOptions& o) {
  std::vector<Share> shares;
  for (int worker = 0; worker < o.workers; ++worker) {
    auto devices = resolve(o.device, worker, o.workers);
    if (!devices.ok()) return devices.error();
    shares.push_back(std::move(*devices));
  }
  return shares;
}

std::vector<std::string> worker_command(const CommonOptions& common, const UpOptions& o,
                                        const Share& share, HeadProcess& process) {
  // A NUMA node and a GPU have what is their own.
  const Device::Options& device = share.front();
  const bool own = device.numa_node != kAnyNumaNode || device.kind == "cuda";
  HostPort head = process.control_address();
  if (head.host == "0.0.0.0" || head.host.empty()) head.host = "127.0.0.1";
  std::vector<std::string> words = {
      std::filesystem::read_symlink("/proc/self/exe").string(),
      "worker",
      "--head",
      to_string(head),
      "--join",
      process.files().join_path(),
      "--state-dir",
      common.state_dir,
      "--log-level",
      common.log_level,
      "--device",
      list_of(share),
      "--threads",
      std::to_string(own ? o.device.threads : device.threads),
      "--cpu-family",
      std::string(to_string(device.cpu_family)),
      "--device-memory",
      own ? o.device.device_memory : std::to_string(device.memory_total),
      "--expert-tier-memory",
      o.device.expert_tier_memory,
      "--fabric",
      o.head.network.fabric};
  if (!o.head.network.bind_interface.empty()) {
    words.push_back("--bind-interface");
    words.push_back(o.head.network.bind_interface);
  }
  return words;
}

/// The bulk lane that the workers would open, and NCCL, tried here when flags ask for a certain
/// one: what no worker could start with is an error of the command.
Status check_fabric(const NetworkFlags& network, const Share& share,
                    const std::string& nccl_library) {
  if (network.fabric == "auto" && network.bind_interface.empty()) return {};
  struct Nobody : transport::FabricEvents {
    void on_frame(transport::PeerKey, transport::Frame) override {}
    void on_peer_up(transport::PeerKey) override {}
    void on_peer_down(transport::PeerKey, LinkEnd) override {}
  } nobody;
  auto kind = transport::parse_fabric_kind(network.fabric);
  if (!kind.ok()) return kind.error();
  transport::FabricOptions options;
  options.kind = *kind;
  options.bind_interface = network.bind_interface;
  auto fabric = transport::make_libfabric(options, nobody);
  if (!fabric.ok()) return fabric.error();
  auto with = choose_nccl(*kind, share, nccl_library);
  if (!with.ok()) return with.error();
  if (!*with) return {};
  (*with)->gpus.clear();  // the libraries alone: they are the workers'
  auto nccl = nccl::Node::open(std::move(**with));
  if (!nccl.ok()) return nccl.error();
  return {};
}

/// All workers are of this machine: what it cannot compute none of them will.
Status check_numerics(const EngineFlags& flags, const Device::Options& device) {
  const auto engine = resolve(flags);
  if (!engine.ok() || !engine->numerics) return {};
  const auto have = numerics_of(device.kind, device.cpu_family);
  if (std::find(have.begin(), have.end(), *engine->numerics) != have.end()) return {};
  return refused("--numerics: this machine cannot compute " +
                 std::string(to_string(*engine->numerics)) + " with " +
                 (device.kind == "cpu" ? std::string(to_string(device.cpu_family)) : device.kind) +
                 "; it has " + in_words(have) + ".");
}

/// Waits until the cluster serves and says so. With all workers here a model that does not fit will
/// never: then that error comes back.
Status wait_ready(HeadProcess& process, std::size_t devices,
                  const std::function<std::string()>& message) {
  HeadNode& head = process.head();
  while (!process.closing() && !head.wait_ready(std::chrono::milliseconds(100))) {
    const auto trouble = head.trouble();
    const bool lasting = trouble && trouble->code != ErrorCode::kUnavailable;
    if (lasting && head.devices() >= devices) return *trouble;
  }
  if (!process.closing()) std::fputs(message().c_str(), stderr);
  return {};
}

int run(const CommonOptions& common, const UpOptions& o) {
  const Signals signals;
  (void)speak_as("head", common);
  const TimePoint started = now();
  const auto shares = shares_of(o);
  if (!shares.ok()) return fail_with(shares.error());
  std::size_t devices = 0;
  for (const Share& share : *shares) devices += share.size();
  if (const auto tier = resolve_tier(o.device); !tier.ok()) return fail_with(tier.error());
  if (const Status fabric = check_fabric(o.head.network, shares->front(), o.device.doubles.nccl);
      !fabric.ok())
    return fail_with(fabric.error());
  if (const Status computes = check_numerics(o.head.engine, shares->front().front());
      !computes.ok())
    return fail_with(computes.error());
  const auto model = open_head_model(o.head, static_cast<int>(devices), CheckpointUse::kTensors);
  if (!model.ok()) return fail_with(model.error());
  const auto followed = StandbyFiles::earlier(common.state_dir);
  if (!followed.ok()) return fail_with(followed.error());
  if (*followed)
    return fail_with(refused("The head of " + common.state_dir + " follows the one at " +
                             (*followed)->head_address +
                             "; start it with `troupe head`, or choose another --state-dir."));
  auto started_head = HeadProcess::start(common, o.head, *model, o.device.doubles, [&] {
    const auto signal = signals.wait(Duration::zero());
    return signal == SIGTERM || signal == SIGINT;
  });
  if (!started_head.ok())
    return started_head.error().code == ErrorCode::kCancelled ? kDone
                                                              : fail_with(started_head.error());
  if (!started_head->process)
    return fail_with(refused("The standby at " + started_head->follow +
                             " has become the head; follow it with `troupe head --standby-of`."));
  HeadProcess& process = *started_head->process;
  HeadNode& head = process.head();
  std::fprintf(stderr, "Serving %s with %d worker%s on this machine.\n",
               head.frontend().served_model_name().c_str(), o.workers, o.workers == 1 ? "" : "s");
  if (o.head.min_devices > static_cast<int>(devices))
    std::fprintf(stderr,
                 "It serves once %d devices are here; more workers have to join than it starts.\n",
                 o.head.min_devices);
  std::vector<std::vector<std::string>> commands;
  for (const Share& share : *shares) commands.push_back(worker_command(common, o, share, process));
  Children children(std::move(commands), !o.no_respawn);
  children.start_all();
  std::atomic<bool> look{false};
  head.subscribe([&](const ClusterEvent& event) {
    if (event.kind == "stopping") children.stopping();
    if (event.kind != "node_joined" && event.kind != "node_lost") return;
    look = true;
    Signals::nudge();
  });
  std::atomic<bool> hopeless{false}, served{false};
  Status ready, workers;
  std::thread announcer([&] {
    ready = wait_ready(process, devices, [&] {
      served = true;
      return ready_message(head, now() - started, common, o.head);
    });
    hopeless = !ready.ok();
    if (hopeless) Signals::nudge();
  });
  while (!process.ended() && !hopeless && workers.ok()) {
    auto pause = children.start_due();
    if (look.exchange(false)) {
      const auto nodes = processes_of(head);
      if (!nodes || children.end_lost(*nodes)) look = true;
    }
    if (look) pause = std::min(pause.value_or(kLook), kLook);
    const auto signal = signals.wait(pause);
    if (signal == SIGTERM || signal == SIGINT) break;
    if (signal == SIGCHLD) children.reap();
    if (!served) workers = children.useless();
  }
  children.stopping();
  const std::string deposed_by = head.deposed_by();
  process.begin_close();
  announcer.join();
  started_head->process.reset();
  children.end_all();
  if (!deposed_by.empty())
    return fail(refused("The standby at " + deposed_by +
                        " has become the head; follow it with `troupe head --standby-of`."));
  if (!workers.ok()) return fail(workers.error());
  return ready.ok() ? kDone : fail(ready.error());
}

}  // namespace

Command up_command(const Doubles& doubles) {
  auto o = std::make_shared<UpOptions>();
  Command command{
      .name = "up",
      .description = "A whole cluster on this machine: the head here, workers as child processes",
      .examples =
          "  troupe up --model tools/demo/pocket-dictionary\n"
          "  troupe up --model DIR --workers 3 --pipeline-parallel-size 3 --port 9000",
      .flags = {{.name = "--workers",
                 .target = &o->workers,
                 .help = "Worker processes (default: 2)",
                 .range = Range{1, 64}},
                {"--no-respawn", &o->no_respawn, "Start no new worker for one that died or hangs"}},
      .run = [o](const Call& call) { return run(call.common, *o); },
      .takes_signals = true};
  add_head_flags(command, o->head);
  add_device_flags(command, o->device, doubles);
  add_tier_flag(command, o->device);
  return command;
}

}  // namespace troupe::cli
