#include <algorithm>
#include <cstdio>
#include <memory>
#include <optional>
#include <thread>

#include "actors/api/cluster.h"
#include "actors/standby/standby_door.h"
#include "runtime/byte_size.h"
#include "runtime/version.h"
#include "tools/troupe/call.h"
#include "tools/troupe/cluster_files.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/console/canvas.h"
#include "tools/troupe/console/facts.h"
#include "tools/troupe/console/format.h"
#include "tools/troupe/local_time.h"
#include "tools/troupe/standby_files.h"
#include "tools/troupe/worker_registry.h"

namespace troupe::cli {
namespace {

using console::Facts;

struct StatusOptions {
  bool json = false;
  double wait_ready_s = -1;
  bool here = false;
};

Result<std::string> ask(const std::string& state_dir) {
  auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto cluster = Cluster::connect(*join, std::chrono::seconds(2));
  if (cluster.ok()) return (*cluster)->status_json();
  // The standby of that folder was asked first: that is its word.
  if (const auto standby = StandbyFiles::running(state_dir))
    return StandbyDoor(standby->head_address, kVersion, [&] { return cluster.error().message; })
        .status_json();
  return no_head(cluster.error(), state_dir);
}

constexpr std::size_t kEventsShown = 8;

/// What other machines say must not steer the terminal.
std::string plain(const std::string& text) { return console::plain_text(text); }

void print_line(const char* name, const std::string& text) {
  if (!text.empty()) std::printf("%-10s %s\n", name, plain(text).c_str());
}

void print_nodes(const Facts& facts) {
  if (facts.nodes.empty()) return;
  std::printf("\n%-10s %-16s %8s  %-9s %-9s %-7s %5s  %s\n", "node", "host", "process", "state",
              "seen", "device", "load", "memory");
  for (const auto& node : facts.nodes) {
    std::printf("%-10s %-16s %8lld  %-9s ", plain(node.id).c_str(), plain(node.host).c_str(),
                static_cast<long long>(node.pid), plain(node.state).c_str());
    if (node.state == "lost") {
      std::printf("%s\n", plain(node.lost_reason).c_str());
      continue;
    }
    std::printf("%-9s ", (console::short_time(double(node.last_seen_ms) / 1e3) + " ago").c_str());
    const char* indent = "";
    for (const auto& device : node.devices) {
      std::printf(
          "%s%-7s %5s  %s of %s%s%s\n", indent,
          !device.failed.empty() ? "failed"
          : device.slow          ? "slow"
                                 : plain(device.kind).c_str(),
          console::percent(device.utilization).c_str(),
          format_byte_size(device.memory_used).c_str(),
          format_byte_size(device.memory_total).c_str(),
          node.load_total > node.load_done
              ? (", loading " + console::percent(double(node.load_done) / double(node.load_total)))
                    .c_str()
              : "",
          device.about().empty() ? "" : plain(", " + device.about()).c_str());
      indent = "                                                         ";
    }
    if (node.devices.empty()) std::printf("\n");
  }
}

void print_replicas(const Facts& facts) {
  if (!facts.replicas.empty()) std::printf("\n");
  for (const auto& replica : facts.replicas) {
    std::string shards;
    for (const auto& shard : replica.shards)
      shards += (shards.empty() ? "" : ", ") + console::shard_text(shard);
    std::printf("replica %-3s %-8s %lld running, %lld waiting, KV blocks %s, layers %s\n",
                plain(replica.id).c_str(), plain(replica.state).c_str(),
                static_cast<long long>(replica.running), static_cast<long long>(replica.waiting),
                console::kv_text(replica).c_str(), plain(shards).c_str());
  }
}

void print_events(const Facts& facts) {
  if (!facts.events.empty()) std::printf("\n");
  const std::size_t all = facts.events.size();
  for (std::size_t i = all - std::min(all, kEventsShown); i < all; ++i) {
    const auto& event = facts.events[i];
    std::printf("%s  %-12s %s\n", console::clock_time(event.time_unix_s, utc_offset_s()).c_str(),
                plain(event.kind).c_str(), plain(event.text).c_str());
  }
}

/// What the folder's own standby has on its disk.
void print_own_standby(const std::string& state_dir) {
  if (const auto standby = StandbyFiles::running(state_dir))
    std::printf("Here is a standby of the head at %s, %s.\n", plain(standby->head_address).c_str(),
                standby->complete ? "which has all that was accepted"
                                  : "which does not have all that was accepted yet");
}

void print_for_people(const Facts& facts) {
  std::string line = facts.model + "  " + facts.state;
  if (facts.placement_version) line += "  version " + std::to_string(*facts.placement_version);
  line += "  numerics " + (facts.numerics.empty() ? "not chosen yet" : facts.numerics);
  std::printf("%s  up %s\n", plain(line).c_str(), console::short_time(facts.uptime_s).c_str());
  if (!facts.message.empty()) std::printf("%s\n", plain(facts.message).c_str());
  print_nodes(facts);
  print_replicas(facts);
  std::printf("\n");
  print_line("standby", console::standby_text(facts));
  print_line("requests", console::requests_text(facts));
  print_line("rates", console::rates_text(facts));
  print_line("experts", console::joined(console::expert_clauses(facts), ", "));
  print_line("cluster", console::survives_text(facts));
  print_line("weights", console::proofs_text(facts));
  const char* name = "network";
  for (const std::string& line : console::network_lines(facts)) {
    print_line(name, line);
    name = "";
  }
  print_events(facts);
}

Error waited(Error why, const StatusOptions& o) {
  if (why.message.ends_with('.')) why.message.pop_back();
  why.message += "; it was waited for " + console::short_time(o.wait_ready_s) + ".";
  return why;
}

int run_cluster(const CommonOptions& common, const StatusOptions& o) {
  const auto deadline = now() + std::chrono::duration_cast<Duration>(
                                    std::chrono::duration<double>(std::max(0.0, o.wait_ready_s)));
  while (true) {
    auto answer = ask(common.state_dir);
    Facts facts;
    if (answer.ok()) {
      auto read = console::read_facts(*answer);
      if (!read.ok()) return fail(read.error());
      facts = std::move(*read);
    }
    const bool ready = facts.state == "ready";
    if (o.wait_ready_s < 0 || ready || now() >= deadline) {
      if (!answer.ok())
        return fail(o.wait_ready_s > 0 ? waited(answer.error(), o) : answer.error());
      if (o.json) {
        std::printf("%s\n", answer->c_str());
      } else if (facts.state == "standby") {  // there was no head to ask
        std::printf("%s\n", plain(facts.message).c_str());
      } else {
        print_own_standby(common.state_dir);
        print_for_people(facts);
      }
      if (o.wait_ready_s >= 0 && !ready)
        return fail(deadline_exceeded("The cluster is not ready: " + facts.message));
      return kDone;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

/// Whether the head of the folder answers, if one runs, and each worker of this machine that joined
/// by the folder takes its turns: looked at until it has taken one.
int run_here(const CommonOptions& common) {
  constexpr std::chrono::seconds kPatience(10);
  const TimePoint deadline = now() + kPatience;
  const auto first = registered_workers(common.state_dir);
  const bool head = ClusterFiles::in_use(common.state_dir);
  if (first.empty() && !head)
    return fail(not_found("Neither a head that keeps its state in " + common.state_dir +
                          " nor a worker of this machine that joined by its join file runs."));
  if (head) {
    if (const auto status = ask(common.state_dir); !status.ok()) return fail(status.error());
    std::printf("The head answers.\n");
  }
  for (const RegisteredWorker& worker : first) {
    const std::string process = "process " + std::to_string(worker.pid);
    std::optional<RegisteredWorker> later = worker;
    while (later && later->beat == worker.beat && now() < deadline) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      const auto all = registered_workers(common.state_dir);
      const auto found = std::ranges::find(all, worker.pid, &RegisteredWorker::pid);
      later = found != all.end() ? std::optional(*found) : std::nullopt;
    }
    if (!later) return fail(unavailable("The worker of " + process + " has just ended."));
    if (later->beat == worker.beat)
      return fail(deadline_exceeded("The worker of " + process + " has taken no turn for " +
                                    std::to_string(kPatience.count()) + " s: it hangs."));
    std::printf("%s\n", later->node.empty()
                            ? (process + " is well, and seeks its head.").c_str()
                            : (later->node + " (" + process + ") is well.").c_str());
  }
  return kDone;
}

int run(const CommonOptions& common, const StatusOptions& o) {
  if (!o.here) return run_cluster(common, o);
  if (o.json || o.wait_ready_s >= 0)
    return fail_with(
        invalid_argument("--here stands alone: it is about processes, not a cluster."));
  return run_here(common);
}

}  // namespace

Command status_command() {
  auto o = std::make_shared<StatusOptions>();
  return {.name = "status",
          .description = "The cluster at a glance",
          .examples =
              "  troupe status\n"
              "  troupe status --json | jq .cluster.state\n"
              "  troupe status --wait-ready 60\n"
              "  troupe status --here           # exit 1 where the head or a worker here hangs",
          .flags = {{"--json", &o->json, "Print one JSON object instead"},
                    {.name = "--wait-ready",
                     .target = &o->wait_ready_s,
                     .help = "Wait at most this many seconds until it can serve",
                     .range = Range{0, 1e6}},
                    {"--here", &o->here,
                     "Only whether the head that keeps STATE answers, if one runs, and this "
                     "machine's workers that joined by STATE/join take their turns: for probes"}},
          .run = [o](const Call& call) { return run(call.common, *o); }};
}

}  // namespace troupe::cli
