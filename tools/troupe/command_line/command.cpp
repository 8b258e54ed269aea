#include "tools/troupe/command_line/command.h"

#include <algorithm>
#include <cassert>
#include <utility>

namespace troupe::cli {
namespace {

/// The one of that name, or null.
template <class Named>
auto* find(Named& all, std::string_view name) {
  const auto found = std::ranges::find_if(all, [&](const auto& one) { return one.name == name; });
  return found == all.end() ? nullptr : &*found;
}

template <class Flags>
auto* find_either(Flags& flags, std::string_view name) {
  const auto found = std::ranges::find_if(flags, [&](const Flag& flag) {
    return flag.name == name || (!flag.short_name.empty() && flag.short_name == name);
  });
  return found == flags.end() ? nullptr : &*found;
}

}  // namespace

void add_flags(Command& command, const std::string& group, std::vector<Flag> flags) {
  for (Flag& flag : flags) {
    flag.group = group;
    command.flags.push_back(std::move(flag));
  }
}

const Flag* find_flag(const Command& command, std::string_view name) {
  return find_either(command.flags, name);
}

Flag* find_flag(Command& command, std::string_view name) {
  return find_either(command.flags, name);
}

bool is_given(const Command& command, std::string_view name) {
  const Flag* flag = find_flag(command, name);
  assert(flag);
  return flag->given;
}

std::vector<const Flag*> shown_flags(const Command& command) {
  std::vector<const Flag*> shown;
  for (const Flag& flag : command.flags)
    if (flag.name.starts_with("--") && !flag.group.empty()) shown.push_back(&flag);
  return shown;
}

const Command* find_below(const Command& command, std::string_view name) {
  return find(command.below, name);
}

Command* find_below(Command& command, std::string_view name) { return find(command.below, name); }

}  // namespace troupe::cli
