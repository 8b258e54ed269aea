#include <cstdio>

#include "tools/troupe/cli.h"
#include "tools/troupe/operation.h"

namespace troupe::cli {
namespace {

int rebalance(const CommonOptions& common) {
  const auto done = follow_operation(common.state_dir, "troupe rebalance", [](ClientSession& head) {
    return head.send(RebalanceQuery{kOperationQuery});
  });
  if (!done.ok()) return fail(done.error());
  std::fprintf(stderr, "%s\n",
               done->empty() ? "The experts are where the load wants them." : done->c_str());
  return kDone;
}

}  // namespace

void add_rebalance(Cli& cli) {
  add_command(cli, "rebalance", "Move experts now to where the load wants them",
              "  troupe rebalance\n\n"
              "No request waits for it. It shows how far it is, and ends when the last expert has\n"
              "moved; Ctrl-C ends the watching only. The cluster also does it by itself.",
              {[&cli] { return rebalance(cli.common); }});
}

}  // namespace troupe::cli
