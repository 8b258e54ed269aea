#include <cstdio>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "actors/api/client_session.h"
#include "actors/control/caf_system.h"
#include "runtime/limits.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {
namespace {

/// Ended processes whose parent has not asked for them yet do not count.
bool alive(std::int32_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return false;
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] != 'Z';
}

int run(const CommonOptions& common) {
  auto join = find_join_file(common.state_dir);
  if (!join.ok()) return fail(join.error());
  auto caf = CafSystem::make();
  if (!caf.ok()) return fail(caf.error());
  auto answer = std::make_shared<std::promise<std::vector<std::int32_t>>>();
  auto answered = answer->get_future();
  auto once = std::make_shared<std::once_flag>();
  auto session = ClientSession::open(
      (*caf)->system(), *join, "troupe stop", std::chrono::seconds(3),
      {.message =
           [=](const Message& message) {
             if (const auto* reply = std::get_if<StopReply>(&message))
               std::call_once(*once, [&] { answer->set_value(reply->pids); });
           },
       .down = [=](const std::string&) { std::call_once(*once, [&] { answer->set_value({}); }); }});
  if (!session.ok()) return fail(session.error());
  if (const Status sent = (*session)->send(StopQuery{1}); !sent.ok()) return fail(sent.error());
  const auto deadline = now() + limits::kStopDeadline + std::chrono::seconds(2);
  if (answered.wait_for(limits::kStopDeadline) != std::future_status::ready)
    return fail(deadline_exceeded("The head did not answer; end it with SIGTERM."));
  const auto pids = answered.get();
  for (const std::int32_t pid : pids) {
    while (alive(pid) && now() < deadline)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    if (alive(pid))
      return fail(deadline_exceeded("Process " + std::to_string(pid) +
                                    " has not ended yet; end it with `kill " + std::to_string(pid) +
                                    "`."));
  }
  std::fprintf(stderr, "The cluster has stopped.\n");
  return kDone;
}

}  // namespace

void add_stop(Cli& cli) {
  add_command(cli, "stop", "End the cluster in order: head and workers",
              "  troupe stop\n"
              "  troupe stop --state-dir /var/lib/troupe",
              [&cli] { return run(cli.common); });
}

}  // namespace troupe::cli
