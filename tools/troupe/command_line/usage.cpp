#include "tools/troupe/command_line/usage.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <utility>

#include "runtime/edit_distance.h"

namespace troupe::cli {
namespace {

/// What other programs call commands.
constexpr std::pair<std::string_view, std::string_view> kElsewhere[] = {
    {"serve", "up"}, {"start", "up"}, {"launch", "up"}, {"download", "pull"}};

bool looks_like_a_model(const std::string& word) {
  std::error_code failed;
  return word.find('/') != std::string::npos || std::filesystem::exists(word, failed);
}

std::vector<std::string> command_names(const Command& command) {
  std::vector<std::string> names;
  for (const Command& below : command.below) names.push_back(below.name);
  return names;
}

}  // namespace

std::string usage_error(const Parsed& wrong) {
  // Words that nobody takes are the cause of most that is missing.
  const auto& left = wrong.left;
  const auto flag = std::find_if(left.begin(), left.end(),
                                 [](const auto& word) { return word.starts_with("-"); });
  std::string text;
  if (flag != left.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    const auto first = std::min(name.find_first_not_of('-'), name.size());
    if (find_flag(*wrong.command, name))
      text = "'" + name + "' comes after `" + wrong.path + "`, not before";
    else
      text = "'" + name + "' is no flag of `" + wrong.path + "`" +
             flag_hint(shown_flags(*wrong.command), name.substr(first), "--");
  } else if (!left.empty()) {
    text = "'" + left.front() + "' is not expected";
    if (looks_like_a_model(left.front()) && find_flag(*wrong.command, "--model"))
      text += "; did you mean '--model " + left.front() + "'?";
    else
      text += did_you_mean(left.front(), command_names(*wrong.command));
  } else {
    text = wrong.text;
    while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  }
  return text + (text.ends_with('?') ? " `" : "; `") + wrong.path + " --help` tells more.";
}

std::string unknown_command(const Command& root, const std::string& word) {
  std::string hint = did_you_mean(word, command_names(root));
  for (const auto& [other, ours] : kElsewhere)
    if (word == other) hint = "; did you mean '" + std::string(ours) + "'?";
  return "There is no command '" + word + "'" +
         (hint.empty() ? "; `troupe --help` lists them." : hint);
}

std::string flag_hint(const std::vector<const Flag*>& flags, std::string_view name,
                      const std::string& dashes) {
  std::vector<std::string> names;
  for (const Flag* flag : flags) {
    names.push_back(flag->name.substr(2));
    if (std::ranges::count(flag->elsewhere, "--" + std::string(name)) > 0)
      return "; did you mean '" + dashes + names.back() + "'?";
  }
  return did_you_mean(name, names, dashes);
}

std::string did_you_mean(std::string_view word, const std::vector<std::string>& names,
                         const std::string& dashes) {
  const auto best = std::ranges::min_element(
      names, {}, [&](const std::string& name) { return edit_distance(word, name); });
  const std::size_t edits_max = std::max<std::size_t>(1, word.size() / 3);
  if (best == names.end() || edit_distance(word, *best) > edits_max) return {};
  return "; did you mean '" + dashes + *best + "'?";
}

}  // namespace troupe::cli
