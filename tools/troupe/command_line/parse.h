#pragma once

#include <string>
#include <vector>

#include "runtime/result.h"
#include "tools/troupe/command_line/command.h"

namespace troupe::cli {

/// What a command line comes to.
struct Parsed {
  enum class Kind : unsigned char {
    kRun,    ///< the command
    kPrint,  ///< the text, which was asked for
    kWrong,  ///< the text says why
  };
  Kind kind = Kind::kRun;
  Command* command = nullptr;  ///< the last that the line names
  std::string path;            ///< all that it names: "troupe plan eplb"
  std::string text = {};
  std::vector<std::string> left = {};  ///< words that nothing takes, of what is wrong
};

/// Reads the words after the program's name into the targets of flags.
Parsed parse(Command& root, std::vector<std::string> words);

/// Gives a flag the values that a file has for it, each as the command line would have it.
/// kInvalidArgument: it does not take them.
Status set_flag(Flag& flag, const std::vector<std::string>& values);

}  // namespace troupe::cli
