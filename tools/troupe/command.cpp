#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>

#include "runtime/log.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/config_file.h"
#include "tools/troupe/signals.h"

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

bool colour_is_wanted() {
  const char* no = std::getenv("NO_COLOR");
  const char* terminal = std::getenv("TERM");
  return isatty(STDERR_FILENO) && !(no && *no) && terminal && std::string_view(terminal) != "dumb";
}

/// On one line, and nothing that a terminal would obey: messages quote what files say.
std::string one_line(const std::string& text) {
  constexpr std::string_view kHex = "0123456789abcdef";
  std::string line;
  for (const char c : text) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n')
      line += "\\n";
    else if (byte < 0x20 || byte == 0x7f)
      line += {'\\', 'x', kHex[byte >> 4], kHex[byte & 15]};
    else
      line += c;
  }
  return line;
}

}  // namespace

Status speak_as(const std::string& who, const CommonOptions& common) {
  return init_log({common.log_level, who, colour_is_wanted()});
}

CLI::App* add_command(Cli& cli, const std::string& name, const std::string& description,
                      const std::string& examples, Action action) {
  CLI::App* command = cli.app.add_subcommand(name, description);
  set_up_command(cli, command, examples, std::move(action));
  return command;
}

void set_up_command(Cli& cli, CLI::App* command, const std::string& examples, Action action) {
  command->footer("Examples:\n" + examples);
  command->add_option("--state-dir", cli.common.state_dir,
                      action.keeps_state ? "Where certificates and the join file are (default: "
                                           "$TROUPE_STATE_DIR, else ~/.local/state/troupe)"
                                         : "Every command takes it; this one keeps no state");
  command->add_option("--log-level", cli.common.log_level,
                      "trace, debug, info, warn, error or off (default: " + action.log_level + ")");
  command->add_option("--config", cli.common.config_file,
                      "A TOML file with flags by name; a flag on the command line beats it");
  command->callback([&cli, command, action = std::move(action)] {
    const auto end = [](int code) {
      if (code != kDone) throw CLI::RuntimeError(code);
    };
    if (!cli.common.config_file.empty())
      if (const Status read = apply_config_file(*command, cli.common.config_file); !read.ok())
        return end(fail(read.error(), kUsage));
    if (cli.common.log_level.empty()) cli.common.log_level = action.log_level;
    if (const Status log = speak_as("", cli.common); !log.ok())
      return end(fail(log.error(), kUsage));
    cli.common.state_dir_given = !cli.common.state_dir.empty();
    auto dir = state_dir_of(cli.common.state_dir);
    if (!dir.ok()) return end(fail(dir.error(), kUsage));
    cli.common.state_dir = std::move(*dir);
    if (action.takes_signals) return end(action.run());
    const EndOnSignal end_on_signal;
    end(action.run());
  });
}

int fail(const Error& error, int code) {
  std::fflush(stdout);
  // Messages that are made to be part of others bring no full stop.
  const std::string message = one_line(error.message);
  const bool ends =
      !message.empty() && std::string(".?!").find(message.back()) != std::string::npos;
  std::fprintf(stderr, "troupe: %s%s\n", message.c_str(), ends ? "" : ".");
  return code;
}

int fail_with(const Error& error) {
  return fail(error, error.code == ErrorCode::kInvalidArgument ? kUsage : kFailed);
}

}  // namespace troupe::cli
