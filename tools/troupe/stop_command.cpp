#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <future>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <thread>

#include "actors/api/client_session.h"
#include "actors/control/caf_system.h"
#include "tools/troupe/call.h"
#include "tools/troupe/cluster_files.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/worker_registry.h"

namespace troupe::cli {
namespace {

constexpr Duration kStopAnswerDeadline = std::chrono::seconds(2);
/// Members have so long to leave as they were told, then to end on a signal.
constexpr Duration kWish = std::chrono::milliseconds(1000);
constexpr Duration kPatience = std::chrono::milliseconds(2500);
constexpr Duration kDeadline = std::chrono::milliseconds(5500);
static_assert(kStopAnswerDeadline + kDeadline < std::chrono::seconds(8));

/// Ended processes whose parent has not asked for them yet do not count.
bool alive(std::int32_t pid) {
  std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
  std::string line;
  if (!std::getline(stat, line)) return false;
  const auto name_end = line.rfind(')');
  return name_end != std::string::npos && line.size() > name_end + 2 && line[name_end + 2] != 'Z';
}

/// Whether it is a worker of Troupe. What the head says of its members may be about another
/// machine of the same name.
bool is_worker(std::int32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline", std::ios::binary);
  std::string program, command;
  return std::getline(file, program, '\0') && std::getline(file, command, '\0') &&
         command == "worker" && std::filesystem::path(program).filename() == "troupe";
}

/// Asks the head to stop. Its process and those of its members on this machine.
Result<std::vector<std::int32_t>> workers_of(const std::string& join) {
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  auto answer = std::make_shared<std::promise<std::vector<std::int32_t>>>();
  auto answered = answer->get_future();
  auto once = std::make_shared<std::once_flag>();
  auto session = ClientSession::open(
      (*caf)->system(), join, "troupe stop", std::chrono::seconds(3),
      {.message =
           [=](const Message& message) {
             if (const auto* reply = std::get_if<StopReply>(&message))
               std::call_once(*once, [&] { answer->set_value(reply->pids); });
           },
       .down = [=](const std::string&) { std::call_once(*once, [&] { answer->set_value({}); }); }});
  if (!session.ok()) return session.error();
  if (const Status sent = (*session)->send(StopQuery{1}); !sent.ok()) return sent.error();
  if (answered.wait_for(kStopAnswerDeadline) != std::future_status::ready)
    return deadline_exceeded("The head did not answer; end it with SIGTERM.");
  return answered.get();
}

/// The processes of a cluster that has been told to stop.
class Ending {
 public:
  Ending(const std::string& state_dir, const std::vector<std::int32_t>& told)
      : state_dir_(state_dir), told_(told.begin(), told.end()), left_(told_) {}

  /// Members leave as the head tells them. Workers that it did not know are told here, and those
  /// that do not listen are ended.
  Status wait() {
    const TimePoint started = now();
    std::set<std::int32_t> asked, killed;
    while (true) {
      // One that takes its name out of the folder is still ending.
      for (const auto& worker : registered_workers(state_dir_)) left_.insert(worker.pid);
      std::erase_if(left_, [](std::int32_t pid) { return !alive(pid); });
      if (left_.empty()) return {};
      const Duration waited = now() - started;
      for (const std::int32_t pid : left_) {
        if (!is_worker(pid)) continue;
        if ((!told_.contains(pid) || waited > kWish) && asked.insert(pid).second) {
          kill(pid, SIGTERM);
          kill(pid, SIGCONT);  // it may have been stopped
        }
        if (waited > kPatience && killed.insert(pid).second) kill(pid, SIGKILL);
      }
      if (waited > kDeadline)
        return deadline_exceeded("Process " + std::to_string(*left_.begin()) +
                                 " has not ended yet; end it with `kill " +
                                 std::to_string(*left_.begin()) + "`.");
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
  }

 private:
  const std::string state_dir_;
  const std::set<std::int32_t> told_;
  std::set<std::int32_t> left_;
};

int stop(const CommonOptions& common) {
  auto join = find_join_file(common.state_dir);
  if (!join.ok()) return fail(join.error());
  auto told = workers_of(*join);
  if (!told.ok()) return fail(told.error());
  if (const Status ended = Ending(common.state_dir, *told).wait(); !ended.ok())
    return fail(ended.error());
  std::fprintf(stderr, "The cluster has stopped.\n");
  return kDone;
}

}  // namespace

Command stop_command() {
  return {.name = "stop",
          .description = "End the cluster in order: head and workers",
          .examples =
              "  troupe stop\n"
              "  troupe stop --state-dir /var/lib/troupe",
          .run = [](const Call& call) { return stop(call.common); }};
}

}  // namespace troupe::cli
