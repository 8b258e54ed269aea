#include <cstdio>
#include <memory>
#include <thread>

#include "tools/troupe/head_process.h"
#include "tools/troupe/signals.h"

namespace troupe::cli {
namespace {

int run(const CommonOptions& common, const HeadFlags& flags) {
  const Signals signals;
  (void)speak_as("head", common);
  const TimePoint started = now();
  auto process = HeadProcess::start(common, flags, 1);
  if (!process.ok()) return fail_with(process.error());
  const std::string join =
      common.state_dir_given ? " --join '" + (*process)->files().join_path() + "'" : "";
  std::fprintf(stderr,
               "The head listens on %s. On each worker run:\n  %s worker --head %s%s\n"
               "(on another machine with a copy of %s and --join FILE)\n",
               to_string((*process)->control_address()).c_str(), common.program.c_str(),
               to_string(found_at((*process)->control_address())).c_str(), join.c_str(),
               (*process)->files().join_path().c_str());
  std::thread announcer([&] {
    while (!(*process)->closing() && !(*process)->head().wait_ready(std::chrono::seconds(1))) {
    }
    if (!(*process)->closing())
      std::fputs(
          ready_message((*process)->head().http_url(), now() - started, common, flags).c_str(),
          stderr);
  });
  while (true) {
    const auto signal = signals.wait(std::nullopt);
    if (signal == SIGTERM || signal == SIGINT || (*process)->ended()) break;
  }
  (*process)->begin_close();
  announcer.join();
  process->reset();
  return kDone;
}

}  // namespace

void add_head(Cli& cli) {
  auto o = std::make_shared<HeadFlags>();
  CLI::App* command = add_command(
      cli, "head", "Run the head: it waits for workers, then serves the OpenAI API",
      "  troupe head --model /models/DeepSeek-V3 --listen 10.0.0.1:6379 --min-devices 8\n"
      "  troupe head --model DIR --pipeline-parallel-size 2 --port 9000 --api-key SECRET",
      {[&cli, o] { return run(cli.common, *o); }, true});
  add_head_flags(command, *o);
}

}  // namespace troupe::cli
