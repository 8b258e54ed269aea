#include "tools/troupe/program.h"

#include <algorithm>
#include <csignal>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/alternate_stack.h"
#include "runtime/version.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/crash_report.h"
#include "tools/troupe/signals.h"
#include "tools/troupe/usage.h"

namespace troupe::cli {
namespace {

/// Whether the first word is neither a flag nor a command.
bool is_unknown(const CLI::App& app, const std::vector<std::string>& words) {
  if (words.empty() || words[0].starts_with("-")) return false;
  return app.get_subcommands([&](const auto* command) { return command->get_name() == words[0]; })
      .empty();
}

}  // namespace

int run_program(int argc, char** argv, const Doubles& doubles) {
  const Signals signals;
  std::signal(SIGPIPE, SIG_IGN);
  std::signal(SIGXFSZ, SIG_IGN);  // a file that may not grow is an error of its writing
  const AlternateStack stack;
  if (argc > 1 && std::string_view(argv[1]) == "crash-report")
    return report_crash({argv + 2, argv + argc});
  Cli cli;
  cli.doubles = doubles;
  cli.app.name("troupe");
  if (argc > 0 && std::string_view(argv[0]).find('/') != std::string_view::npos)
    cli.common.program = argv[0];
  cli.app.set_version_flag("--version", kVersion);
  cli.app.require_subcommand(1);
  cli.app.footer("Run `troupe help COMMAND` for a command's flags and examples.");
  add_up(cli);
  add_head(cli);
  add_worker(cli);
  add_status(cli);
  add_top(cli);
  add_drain(cli);
  add_rebalance(cli);
  add_stop(cli);
  add_token(cli);
  add_certificate(cli);
  add_chat(cli);
  add_generate(cli);
  add_tokenize(cli);
  add_plan(cli);
  add_pull(cli);
  add_bench(cli);
  add_completion(cli);
  cli.app.failure_message(usage_error);
  std::vector<std::string> words(argv + std::min(argc, 1), argv + argc);
  if (!words.empty() && words[0] == "help") {
    words.erase(words.begin());
    words.push_back("--help");
  }
  if (is_unknown(cli.app, words))
    return fail(invalid_argument(unknown_command(cli.app, words[0])), kUsage);
  std::reverse(words.begin(), words.end());  // as the library wants them
  try {
    cli.app.parse(words);
  } catch (const CLI::Success& e) {
    return cli.app.exit(e);
  } catch (const CLI::RuntimeError& e) {
    return e.get_exit_code();
  } catch (const CLI::ParseError& e) {
    (void)cli.app.exit(e);
    return kUsage;
  }
  return kDone;
}

}  // namespace troupe::cli
