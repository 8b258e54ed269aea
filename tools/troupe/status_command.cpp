#include <cstdio>
#include <memory>
#include <nlohmann/json.hpp>
#include <thread>

#include "actors/api/cluster.h"
#include "runtime/byte_size.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {
namespace {

using nlohmann::json;

struct StatusOptions {
  bool json = false;
  double wait_ready_s = -1;
};

Result<std::string> ask(const std::string& state_dir) {
  auto join = find_join_file(state_dir);
  if (!join.ok()) return join.error();
  auto cluster = Cluster::connect(*join, std::chrono::seconds(2));
  if (!cluster.ok()) return cluster.error();
  return (*cluster)->status_json();
}

std::string layers_of(const json& shard) {
  const auto& layers = shard["layers"];
  return std::to_string(layers[0].get<int>()) + "-" + std::to_string(layers[1].get<int>());
}

void print_nodes(const json& status) {
  if (status["nodes"].empty()) return;
  std::printf("\n%-10s %-16s %8s %-9s %-8s %s\n", "node", "host", "pid", "state", "device",
              "memory");
  for (const auto& node : status["nodes"]) {
    bool first = true;
    for (const auto& device : node["devices"]) {
      const auto used =
          device["memory_used"].is_number() ? device["memory_used"].get<std::uint64_t>() : 0;
      std::printf("%-10s %-16s %8s %-9s %-8s %s of %s\n",
                  first ? node["id"].get<std::string>().c_str() : "",
                  first ? node["host"].get<std::string>().c_str() : "",
                  first ? std::to_string(node["pid"].get<int>()).c_str() : "",
                  first ? node["state"].get<std::string>().c_str() : "",
                  device["kind"].get<std::string>().c_str(), format_byte_size(used).c_str(),
                  format_byte_size(device["memory_total"].get<std::uint64_t>()).c_str());
      first = false;
    }
  }
}

void print_replicas(const json& status) {
  for (const auto& replica : status["replicas"]) {
    std::string shards;
    for (const auto& shard : replica["shards"])
      shards += (shards.empty() ? "" : ", ") + layers_of(shard) + " on " +
                shard["device"].get<std::string>();
    std::printf("replica %s  running %d, waiting %d, KV blocks %d of %d  layers %s\n",
                replica["id"].is_string() ? replica["id"].get<std::string>().c_str()
                                          : replica["id"].dump().c_str(),
                replica["running"].get<int>(), replica["waiting"].get<int>(),
                replica["kv_blocks_used"].get<int>(), replica["kv_blocks_total"].get<int>(),
                shards.c_str());
  }
}

void print_for_people(const json& status) {
  const auto& cluster = status["cluster"];
  std::printf("%s  %s  numerics %s  up %.0f s\n", cluster["model"].get<std::string>().c_str(),
              cluster["state"].get<std::string>().c_str(),
              cluster["numerics"].is_string() ? cluster["numerics"].get<std::string>().c_str()
                                              : "not chosen yet",
              cluster["uptime_s"].get<double>());
  if (const auto message = cluster.value("message", std::string()); !message.empty())
    std::printf("%s\n", message.c_str());
  print_nodes(status);
  if (!status["replicas"].empty()) std::printf("\n");
  print_replicas(status);
  const auto& experts = status["experts"];
  if (experts["experts"].is_number() && experts["experts"].get<int>() > 0)
    std::printf("experts: %d layers of %d, %d copies a layer\n", experts["layers"].get<int>(),
                experts["experts"].get<int>(), experts["copies"].get<int>());
  const auto& requests = status["requests"];
  std::printf("requests: %d running, %d waiting, %d finished, %d failed\n",
              requests["running"].get<int>(), requests["waiting"].get<int>(),
              requests["finished"].get<int>(), requests["failed"].get<int>());
}

int run(const CommonOptions& common, const StatusOptions& o) {
  const auto deadline = now() + std::chrono::duration_cast<Duration>(
                                    std::chrono::duration<double>(std::max(0.0, o.wait_ready_s)));
  while (true) {
    auto answer = ask(common.state_dir);
    json status;
    bool ready = false;
    if (answer.ok()) {
      status = json::parse(*answer, nullptr, false);
      if (!status.is_object()) return fail(internal_error("The head's status is not JSON."));
      ready = status["cluster"]["state"] == "ready";
    }
    if (o.wait_ready_s < 0 || ready || now() >= deadline) {
      if (!answer.ok()) return fail(answer.error());
      if (o.json)
        std::printf("%s\n", answer->c_str());
      else
        print_for_people(status);
      if (o.wait_ready_s >= 0 && !ready)
        return fail(deadline_exceeded("The cluster is not ready: " +
                                      status["cluster"].value("message", std::string())));
      return kDone;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
}

}  // namespace

void add_status(Cli& cli) {
  auto o = std::make_shared<StatusOptions>();
  CLI::App* command = add_command(cli, "status", "The cluster at a glance",
                                  "  troupe status\n"
                                  "  troupe status --json | jq .cluster.state\n"
                                  "  troupe status --wait-ready 60",
                                  [&cli, o] { return run(cli.common, *o); });
  command->add_flag("--json", o->json, "Print one JSON object instead");
  command
      ->add_option("--wait-ready", o->wait_ready_s,
                   "Wait at most this many seconds until it can serve")
      ->check(CLI::Range(0.0, 1e6));
}

}  // namespace troupe::cli
