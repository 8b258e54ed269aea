#pragma once

#include <CLI/CLI.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace troupe::cli {

/// An error of the command line as one sentence, with what was probably meant and where to read on.
std::string usage_error(const CLI::App* app, const CLI::Error& error);

/// "There is no command 'stauts'; did you mean 'status'?"
std::string unknown_command(const CLI::App& app, const std::string& word);

/// The names of a command's flags, without the dashes.
std::vector<std::string> flag_names(const CLI::App& command);

/// The one of `names` that takes the fewest single-character edits; empty if there are none.
std::string nearest(std::string_view word, const std::vector<std::string>& names);

}  // namespace troupe::cli
