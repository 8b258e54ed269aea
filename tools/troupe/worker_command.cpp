#include <atomic>
#include <cstdio>
#include <filesystem>
#include <memory>
#include <thread>

#include "actors/control/caf_system.h"
#include "actors/node_agent/worker_node.h"
#include "runtime/host.h"
#include "runtime/log.h"
#include "runtime/version.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/signals.h"

namespace troupe::cli {
namespace {

struct WorkerCommandOptions {
  std::string head, join, model;
  DeviceFlags device;
  NetworkFlags network;
};

Result<JoinFile> join_of(const CommonOptions& common, const WorkerCommandOptions& o) {
  const std::string path = o.join.empty() ? common.state_dir + "/join" : o.join;
  auto join = read_join_file(path);
  if (!join.ok() && join.error().code == ErrorCode::kNotFound)
    return not_found(
        "There is no join file " + path +
        "; copy the one that the head wrote (STATE/join there) and name it with --join.");
  return join;
}

Result<std::vector<HostPort>> heads_of(const WorkerCommandOptions& o, const JoinFile& join) {
  std::vector<HostPort> heads;
  if (!o.head.empty()) {
    auto address = parse_host_port(o.head);
    if (!address.ok()) return invalid_argument("--head: " + address.error().message);
    heads.push_back(std::move(*address));
    return heads;
  }
  for (const auto& text : join.heads) {
    auto address = parse_host_port(text);
    if (!address.ok()) return address.error();
    heads.push_back(std::move(*address));
  }
  return heads;
}

int run(const CommonOptions& common, const WorkerCommandOptions& o) {
  const Signals signals;
  auto join = join_of(common, o);
  if (!join.ok()) return fail(join.error());
  auto heads = heads_of(o, *join);
  if (!heads.ok()) return fail_with(heads.error());
  auto device = resolve(o.device);
  if (!device.ok()) return fail_with(device.error());
  auto kind = transport::parse_fabric_kind(o.network.fabric);
  if (!kind.ok()) return fail_with(kind.error());

  auto caf = CafSystem::make();
  if (!caf.ok()) return fail(caf.error());
  WorkerOptions options;
  options.version = kVersion;
  options.head = to_string(heads->front());
  options.model_path = o.model.empty() ? "" : std::filesystem::absolute(o.model).string();
  options.devices = {*device};
  transport::FabricOptions fabric;
  fabric.kind = *kind;
  fabric.bind_interface = o.network.bind_interface;
  fabric.host = local_address_towards(heads->front().host, heads->front().port);
  options.fabric = fabric;
  auto link = make_tcp_link((*caf)->system(), *heads, join->worker);
  if (!link.ok()) return fail(link.error());
  Post post;
  auto worker = WorkerNode::start((*caf)->system(), post, std::move(options), std::move(*link));
  if (!worker.ok()) return fail_with(worker.error());

  std::atomic<bool> over{false};
  std::thread watcher([&] {
    while (!(*worker)->wait(std::chrono::seconds(1)))
      if (over) return;
    Signals::nudge();
  });
  bool leaving = false;
  std::optional<WorkerNode::Exit> exit;
  while (!(exit = (*worker)->wait(Duration::zero()))) {
    const auto signal =
        signals.wait(leaving ? std::optional<Duration>(limits::kStopDeadline) : std::nullopt);
    if (signal == SIGTERM || signal == SIGINT) {
      (*worker)->leave("it was told to end");
      leaving = true;
    } else if (!signal) {
      break;  // it did not leave in time
    }
  }
  over = true;
  watcher.join();
  worker->reset();
  if (!exit || exit->code == 0) return kDone;
  return fail({ErrorCode::kRefused, exit->reason}, exit->code);
}

}  // namespace

void add_worker(Cli& cli) {
  auto o = std::make_shared<WorkerCommandOptions>();
  CLI::App* command =
      add_command(cli, "worker", "Run a worker: it joins the head and computes",
                  "  troupe worker --head 127.0.0.1:6379\n"
                  "  troupe worker --head 10.0.0.1:6379 --join ./join --model /models/DeepSeek-V3",
                  [&cli, o] { return run(cli.common, *o); });
  command->add_option("--head", o->head, "HOST:PORT of the head (default: the join file's)");
  command->add_option("--join", o->join, "The join file that the head wrote (default: STATE/join)");
  command->add_option("--model", o->model, "The checkpoint here (default: the head's path)");
  add_device_flags(command, o->device);
  add_network_flags(command, o->network);
}

}  // namespace troupe::cli
