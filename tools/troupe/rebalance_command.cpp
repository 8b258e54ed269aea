#include <cstdio>

#include "tools/troupe/call.h"
#include "tools/troupe/commands.h"
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

Command rebalance_command() {
  return {.name = "rebalance",
          .description = "Move experts now to where the load wants them",
          .examples =
              "  troupe rebalance\n\n"
              "No request waits for it. It shows how far it is, and ends when the last expert has\n"
              "moved; Ctrl-C ends the watching only. The cluster also does it by itself.",
          .run = [](const Call& call) { return rebalance(call.common); }};
}

}  // namespace troupe::cli
