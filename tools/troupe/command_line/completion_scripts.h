#pragma once

#include <string>

#include "tools/troupe/command_line/command.h"

namespace troupe::cli {

// Scripts with which a shell completes the commands and flags of a program. A word that follows a
// flag with a value is completed as one of its values, or else as a file.

std::string bash_completion(const Command& root);
std::string zsh_completion(const Command& root);
std::string fish_completion(const Command& root);

}  // namespace troupe::cli
