#include <cstdio>
#include <memory>

#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/operation.h"
#include "tools/troupe/worker_registry.h"

namespace troupe::cli {
namespace {

struct DrainCommandOptions {
  std::string node;
  bool here = false;
};

Result<std::vector<NodeId>> nodes_of(const CommonOptions& common, const DrainCommandOptions& o) {
  if (o.here != o.node.empty())
    return invalid_argument(
        "NODE or --here is to be given, one of them: the node as `troupe status` prints it, or "
        "this machine's.");
  std::vector<std::string> names;
  if (!o.here) names.push_back(o.node);
  if (o.here)
    for (const RegisteredWorker& worker : registered_workers(common.state_dir))
      if (!worker.node.empty()) names.push_back(worker.node);
  // Workers are no members while there is no head.
  if (names.empty())
    if (const Status found = seek_head(common.state_dir, "troupe drain"); !found.ok())
      return found.error();
  if (names.empty())
    return not_found("No worker of this machine that joined by " + common.state_dir +
                     "/join is a member of its cluster; name a node, or say where the worker "
                     "keeps its state with --state-dir.");
  std::vector<NodeId> nodes;
  for (const std::string& name : names) {
    const auto node = parse_node(name);
    if (!node.ok()) return node.error();
    nodes.push_back(*node);
  }
  return nodes;
}

int drain(const CommonOptions& common, NodeId node) {
  const auto done = follow_operation(common.state_dir, "troupe drain", [&](ClientSession& head) {
    return head.send(DrainQuery{kOperationQuery, node});
  });
  if (!done.ok()) return fail(done.error());
  std::fprintf(
      stderr, "%s\n",
      done->empty() ? (to_string(node) + " may be switched off.").c_str() : done->c_str());
  return kDone;
}

int run(const CommonOptions& common, const DrainCommandOptions& o) {
  const auto nodes = nodes_of(common, o);
  if (!nodes.ok()) return fail_with(nodes.error());
  for (const NodeId node : *nodes)
    if (const int code = drain(common, node); code != kDone) return code;
  return kDone;
}

}  // namespace

Command drain_command() {
  auto o = std::make_shared<DrainCommandOptions>();
  return {.name = "drain",
          .description = "Move everything off a node, then let it leave the cluster",
          .examples =
              "  troupe drain node-3\n"
              "  troupe drain 3 && ssh host-of-node-3 poweroff\n"
              "  troupe drain --here && poweroff\n\n"
              "Running requests go on elsewhere. It shows how far it is, and ends when the node "
              "may be\n"
              "switched off; Ctrl-C ends the watching only.",
          .flags = {{"NODE", &o->node, "The node, as `troupe status` prints it: node-3, or 3"},
                    {"--here", &o->here,
                     "The nodes of this machine's workers that joined by STATE/join"}},
          .run = [o](const Call& call) { return run(call.common, *o); }};
}

}  // namespace troupe::cli
