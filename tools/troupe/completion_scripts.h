#pragma once

#include <string>
#include <utility>
#include <vector>

namespace troupe::cli {

struct FlagWords {
  std::string name, description;  ///< the name with its dashes
  bool takes_value = false;
  std::vector<std::string> values = {};  ///< that it may have; none: a file's name, or anything
};

/// What can be typed after a command.
struct CommandWords {
  std::string path;          ///< as typed: "plan eplb"; empty: the program itself
  std::string parent, name;  ///< the path in two parts
  std::vector<FlagWords> flags;
  std::vector<std::pair<std::string, std::string>> below;  ///< commands, with their descriptions
};

// Scripts with which a shell completes commands and flags. A word that follows a flag with a value
// is completed as one of its values, or else as a file.

std::string bash_completion(const std::vector<CommandWords>& commands);
std::string zsh_completion(const std::vector<CommandWords>& commands);
std::string fish_completion(const std::vector<CommandWords>& commands);

}  // namespace troupe::cli
