#include <csignal>
#include <optional>
#include <string>
#include <string_view>

#include "runtime/version.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/signals.h"

namespace {

/// An error of the command line as one sentence, with where to read on.
std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  std::string what = error.what();
  while (!what.empty() && (what.back() == '.' || what.back() == '\n')) what.pop_back();
  std::string command = "troupe";
  for (auto used = app->get_subcommands(); !used.empty(); used = used.front()->get_subcommands())
    command += " " + used.front()->get_name();
  return "troupe: " + what + "; `" + command + " --help` tells more.\n";
}

/// The first word, if it is neither a flag nor a command.
const char* unknown_command(const CLI::App& app, int argc, char** argv) {
  if (argc < 2 || argv[1][0] == '-') return nullptr;
  const auto named = app.get_subcommands(
      [&](const CLI::App* command) { return command->get_name() == argv[1]; });
  return named.empty() ? argv[1] : nullptr;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace troupe::cli;
  // Libraries that libfabric brings along install handlers of their own before main.
  for (const int signal : {SIGINT, SIGTERM, SIGABRT, SIGSEGV, SIGILL, SIGBUS, SIGFPE})
    std::signal(signal, SIG_DFL);
  std::signal(SIGPIPE, SIG_IGN);
  // Commands that end in order on a signal take it from the start.
  const std::string_view command = argc > 1 ? argv[1] : "";
  std::optional<Signals> signals;
  if (command == "up" || command == "head" || command == "worker" || command == "generate")
    signals.emplace();
  Cli cli;
  cli.app.name("troupe");
  cli.app.set_version_flag("--version", troupe::kVersion);
  cli.app.require_subcommand(1);
  cli.app.footer("Run `troupe COMMAND --help` for a command's flags and examples.");
  add_up(cli);
  add_head(cli);
  add_worker(cli);
  add_status(cli);
  add_top(cli);
  add_drain(cli);
  add_rebalance(cli);
  add_stop(cli);
  add_generate(cli);
  add_tokenize(cli);
  add_plan(cli);
  cli.app.failure_message(usage_error);
  if (const char* word = unknown_command(cli.app, argc, argv))
    return fail(troupe::invalid_argument("There is no command '" + std::string(word) +
                                         "'; `troupe --help` lists them."),
                kUsage);
  try {
    cli.app.parse(argc, argv);
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
