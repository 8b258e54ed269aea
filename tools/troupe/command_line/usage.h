#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/troupe/command_line/parse.h"

namespace troupe::cli {

/// What is wrong with a command line as one sentence, with what was probably meant and where to
/// read on.
std::string usage_error(const Parsed& wrong);

/// "There is no command 'stauts'; did you mean 'status'?"
std::string unknown_command(const Command& root, const std::string& word);

/// "; did you mean '--model'?" of the flag that other programs call that, or else of one whose name
/// is like it; `name` is without dashes.
std::string flag_hint(const std::vector<const Flag*>& flags, std::string_view name,
                      const std::string& dashes = "");

/// "; did you mean 'status'?" of the name that takes the fewest single-character edits, or nothing
/// if none is like the word.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names,
                         const std::string& dashes = "");

}  // namespace troupe::cli
