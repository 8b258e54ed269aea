#pragma once

#include <string>

#include "runtime/result.h"
#include "tools/troupe/command_line/command.h"
#include "tools/troupe/command_line/parse.h"
#include "tools/troupe/failure.h"

namespace troupe::cli {

/// What every command has.
struct CommonOptions {
  std::string state_dir;         ///< resolved before a command runs
  bool state_dir_given = false;  ///< by a flag
  std::string log_level;         ///< resolved too
  std::string config_file;
  std::string program = "troupe";  ///< what to type for it, as far as it is known
};

/// What a command is called with, besides the targets of its flags.
struct Call {
  const Command& command;
  const CommonOptions& common;
};

/// Gives every command --help, and the flags of `options` to those that run.
void add_common_flags(Command& command, CommonOptions& options);

/// Reads the configuration file, sets up logging and runs the command; the exit code.
int call(const Parsed& parsed, CommonOptions& options);

/// Lines of the log begin with that name from now on.
Status speak_as(const std::string& who, const CommonOptions& common);

}  // namespace troupe::cli
