#include "tools/troupe/call.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "runtime/log.h"
#include "tools/troupe/command_line/config_file.h"
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

void add_common_flags(Command& command, CommonOptions& options) {
  for (Command& below : command.below) add_common_flags(below, options);
  std::vector<Flag> flags = {{.name = "--help",
                              .target = Print::kHelp,
                              .help = "Print this help message and exit",
                              .short_name = "-h"}};
  if (command.run) {
    flags.push_back({"--state-dir", &options.state_dir,
                     command.keeps_state ? "Where certificates and the join file are (default: "
                                           "$TROUPE_STATE_DIR, else ~/.local/state/troupe)"
                                         : "Every command takes it; this one keeps no state"});
    flags.push_back(
        {.name = "--log-level",
         .target = &options.log_level,
         .help = "trace, debug, info, warn, error or off (default: " + command.log_level + ")",
         .values = {"trace", "debug", "info", "warn", "error", "off"}});
    // One command means something else by it.
    if (!find_flag(command, "--config"))
      flags.push_back({"--config", &options.config_file,
                       "A TOML file with flags by name; a flag on the command line beats it"});
  }
  command.flags.insert(command.flags.begin(), flags.begin(), flags.end());
}

int call(const Parsed& parsed, CommonOptions& options) {
  Command& command = *parsed.command;
  if (!options.config_file.empty())
    if (const Status read = apply_config_file(command, parsed.path, options.config_file);
        !read.ok())
      return fail(read.error(), kUsage);
  if (options.log_level.empty()) options.log_level = command.log_level;
  if (const Status log = speak_as("", options); !log.ok()) return fail(log.error(), kUsage);
  options.state_dir_given = !options.state_dir.empty();
  if (command.keeps_state) {
    auto dir = state_dir_of(options.state_dir);
    if (!dir.ok()) return fail(dir.error(), kUsage);
    options.state_dir = std::move(*dir);
  }
  const Call call{command, options};
  if (command.takes_signals) return command.run(call);
  const EndOnSignal end_on_signal;
  return command.run(call);
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
