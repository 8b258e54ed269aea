#pragma once

#include <string>

#include "runtime/result.h"
#include "tools/troupe/command_line/command.h"

namespace troupe::cli {

/// Reads a TOML file whose keys are a command's flags without the dashes ("max-num-seqs = 64"), and
/// gives each flag that the command line left out its value. An unknown key is an error that names
/// the nearest known one; so is a value that the flag does not take. `words` call the command:
/// "troupe plan eplb".
Status apply_config_file(Command& command, const std::string& words, const std::string& path);

}  // namespace troupe::cli
