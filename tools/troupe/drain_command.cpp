#include <cstdio>
#include <memory>

#include "tools/troupe/cli.h"
#include "tools/troupe/operation.h"

namespace troupe::cli {
namespace {

int run(const CommonOptions& common, const std::string& name) {
  const auto node = parse_node(name);
  if (!node.ok()) return fail(node.error(), kUsage);
  const auto done = follow_operation(common.state_dir, "troupe drain", [&](ClientSession& head) {
    return head.send(DrainQuery{kOperationQuery, *node});
  });
  if (!done.ok()) return fail(done.error());
  std::fprintf(
      stderr, "%s\n",
      done->empty() ? (to_string(*node) + " may be switched off.").c_str() : done->c_str());
  return kDone;
}

}  // namespace

void add_drain(Cli& cli) {
  auto node = std::make_shared<std::string>();
  CLI::App* command = add_command(
      cli, "drain", "Move everything off a node, then let it leave the cluster",
      "  troupe drain node-3\n"
      "  troupe drain 3 && ssh host-of-node-3 poweroff\n\n"
      "Running requests go on elsewhere. It shows how far it is, and ends when the node may be\n"
      "switched off; Ctrl-C ends the watching only.",
      {[&cli, node] { return run(cli.common, *node); }});
  command->add_option("NODE", *node, "The node, as `troupe status` prints it: node-3, or 3")
      ->required();
}

}  // namespace troupe::cli
