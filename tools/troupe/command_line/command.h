#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::cli {

struct Call;

/// What a flag has printed, instead of having a command run.
enum class Print : unsigned char { kHelp, kVersion };

/// Where a flag's value goes. A bool becomes true by the flag alone; a list of numbers is written
/// with commas: 1,2,3.
using Target =
    std::variant<Print, bool*, std::int32_t*, std::int64_t*, std::uint32_t*, std::uint64_t*,
                 double*, std::string*, std::optional<std::int32_t>*, std::optional<std::int64_t>*,
                 std::optional<std::uint32_t>*, std::optional<std::uint64_t>*,
                 std::optional<float>*, std::optional<double>*, std::vector<std::int32_t>*,
                 std::vector<std::string>*>;

/// What a number may be, from `min` to `max`.
struct Range {
  double min = 0, max = 0;
  bool operator==(const Range&) const = default;
};
inline constexpr Range kPositive{std::numeric_limits<double>::min(),
                                 std::numeric_limits<double>::max()};

struct Flag {
  std::string name;  ///< "--model"; without dashes: a word of the command line by its place
  Target target;
  std::string help;
  std::string group = "Options";  ///< its heading in the help; empty: the help leaves it out
  std::optional<Range> range = {};
  bool required = false;
  bool one_value_each = false;  ///< of a list: the flag is repeated, else more words may follow it
  std::vector<std::string> values = {};  ///< that a shell offers
  std::string short_name = {};           ///< "-m": the same on a command line; not in a file
  /// Names that it has in other programs: they are not taken, but who writes one is told this one.
  std::vector<std::string> elsewhere = {};
  bool given = false;  ///< by the command line, or by the configuration file
};

/// A command with its flags, as `troupe` has it at the top, and those below it.
struct Command {
  std::string name, description;
  std::string notes = {}, examples = {};  ///< end its help
  std::vector<Flag> flags = {};
  std::vector<Command> below = {};
  /// Called after the configuration file has been read and logging set up; returns the exit code.
  /// None: a command below it is to be named.
  std::function<int(const Call&)> run = {};
  bool takes_signals = false;  ///< else SIGTERM and Ctrl-C end it where it is, with exit code 0
  std::string log_level = "info";
  bool keeps_state = true;  ///< else --state-dir is taken, and means nothing
};

void add_flags(Command& command, const std::string& group, std::vector<Flag> flags);

/// By its name or its short name; null if it has none of that name.
const Flag* find_flag(const Command& command, std::string_view name);
Flag* find_flag(Command& command, std::string_view name);
/// Whether one of its flags, which it has, was given.
bool is_given(const Command& command, std::string_view name);

/// Those that its help shows, in its order; no words by their place.
std::vector<const Flag*> shown_flags(const Command& command);

/// Null if there is none of that name below it.
const Command* find_below(const Command& command, std::string_view name);
Command* find_below(Command& command, std::string_view name);

}  // namespace troupe::cli
