#include <cstdio>
#include <cstdlib>
#include <filesystem>

#include "runtime/log.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/config_file.h"

namespace troupe::cli {
namespace {

Result<std::string> state_dir_of(const std::string& given) {
  if (!given.empty()) return std::filesystem::absolute(given).string();
  if (const char* dir = std::getenv("TROUPE_STATE_DIR"); dir && *dir)
    return std::filesystem::absolute(dir).string();
  if (const char* home = std::getenv("HOME"); home && *home)
    return std::string(home) + "/.local/state/troupe";
  return invalid_argument("There is no home folder; say where to keep state with --state-dir.");
}

}  // namespace

CLI::App* add_command(Cli& cli, const std::string& name, const std::string& description,
                      const std::string& examples, std::function<int()> run) {
  CLI::App* command = cli.app.add_subcommand(name, description);
  set_up_command(cli, command, examples, std::move(run));
  return command;
}

void set_up_command(Cli& cli, CLI::App* command, const std::string& examples,
                    std::function<int()> run) {
  command->footer("Examples:\n" + examples);
  command->add_option("--state-dir", cli.common.state_dir,
                      "Where certificates and the join file are (default: $TROUPE_STATE_DIR, else "
                      "~/.local/state/troupe)");
  command->add_option("--log-level", cli.common.log_level,
                      "trace, debug, info, warn, error or off (default: info)");
  command->add_option("--config", cli.common.config_file,
                      "A TOML file with flags by name; a flag on the command line beats it");
  command->callback([&cli, command, run = std::move(run)] {
    const auto end = [](int code) {
      if (code != kDone) throw CLI::RuntimeError(code);
    };
    if (!cli.common.config_file.empty())
      if (const Status read = apply_config_file(*command, cli.common.config_file); !read.ok())
        return end(fail(read.error(), kUsage));
    if (const Status log = init_log(cli.common.log_level); !log.ok())
      return end(fail(log.error(), kUsage));
    auto dir = state_dir_of(cli.common.state_dir);
    if (!dir.ok()) return end(fail(dir.error(), kUsage));
    cli.common.state_dir = std::move(*dir);
    end(run());
  });
}

int fail(const Error& error, int code) {
  std::fflush(stdout);
  // Messages that are made to be part of others bring no full stop.
  const std::string& message = error.message;
  const bool ends =
      !message.empty() && std::string(".?!").find(message.back()) != std::string::npos;
  std::fprintf(stderr, "troupe: %s%s\n", message.c_str(), ends ? "" : ".");
  return code;
}

int fail_with(const Error& error) {
  return fail(error, error.code == ErrorCode::kInvalidArgument ? kUsage : kFailed);
}

}  // namespace troupe::cli
