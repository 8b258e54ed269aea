#include "tools/troupe/program.h"

#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/alternate_stack.h"
#include "tools/troupe/call.h"
#include "tools/troupe/command_line/parse.h"
#include "tools/troupe/command_line/usage.h"
#include "tools/troupe/commands.h"
#include "tools/troupe/crash_report.h"
#include "tools/troupe/signals.h"

namespace troupe::cli {
namespace {

/// With all commands below it, which completion_command() needs in one place.
void fill(Command& root, const Doubles& doubles) {
  root.name = "troupe";
  root.description = "Troupe serves DeepSeek-V3-class mixture-of-experts models over a cluster.";
  root.notes = "Run `troupe help COMMAND` for a command's flags and examples.";
  root.flags = {{"--version", Print::kVersion, "Display program version information and exit"}};
  root.below = {up_command(doubles),    head_command(doubles),          worker_command(doubles),
                status_command(),       top_command(),           drain_command(),
                rebalance_command(),    stop_command(),          token_command(),
                certificate_command(),  chat_command(doubles),   generate_command(doubles),
                tokenize_command(),     plan_command(),          pull_command(),
                bench_command(doubles), completion_command(root)};
}

/// Whether the first word is neither a flag nor a command.
bool is_unknown(const Command& root, const std::vector<std::string>& words) {
  return !words.empty() && !words[0].starts_with("-") && !find_below(root, words[0]);
}

/// What did not get out is no success, as with a full disk behind `> file`. A reader that has gone,
/// as `head` does, has had enough; who closed it wants none.
int with_output(int code) {
  std::cout.flush();
  const bool lost = std::fflush(stdout) != 0 || std::ferror(stdout) != 0 || !std::cout;
  pollfd reader{.fd = STDOUT_FILENO, .events = 0, .revents = 0};
  if (code != kDone || !lost || ::fcntl(STDOUT_FILENO, F_GETFD) < 0 ||
      (::poll(&reader, 1, 0) > 0 && (reader.revents & (POLLERR | POLLHUP)) != 0))
    return code;
  return fail(unavailable("The standard output could not be written: its disk may be full."));
}

int run(int argc, char** argv, const Doubles& doubles) {
  const Signals signals;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its writing
  const AlternateStack stack;
  if (argc > 1 && std::string_view(argv[1]) == "crash-report")
    return report_crash({argv + 2, argv + argc});
  std::error_code gone;
  (void)std::filesystem::current_path(gone);
  if (gone)
    return fail(invalid_argument("The working folder cannot be had (" + gone.message() +
                                 "): it may be deleted; change to another."));
  CommonOptions common;
  if (argc > 0 && std::string_view(argv[0]).find('/') != std::string_view::npos)
    common.program = argv[0];
  Command root;
  fill(root, doubles);
  add_common_flags(root, common);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  if (is_unknown(root, words))
    return fail(invalid_argument(unknown_command(root, words[0])), kUsage);
  const Parsed parsed = parse(root, std::move(words));
  switch (parsed.kind) {
    case Parsed::Kind::kRun:
      return call(parsed, common);
    case Parsed::Kind::kPrint:
      std::fputs(parsed.text.c_str(), stdout);
      return kDone;
    case Parsed::Kind::kWrong:
      return fail(invalid_argument(usage_error(parsed)), kUsage);
  }
  return kFailed;
}

}  // namespace

int run_program(int argc, char** argv, const Doubles& doubles) {
  return with_output(run(argc, argv, doubles));
}

}  // namespace troupe::cli
