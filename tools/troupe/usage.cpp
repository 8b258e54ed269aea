#include "tools/troupe/usage.h"

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

/// "; did you mean 'status'?", or nothing if no name is like the word.
std::string did_you_mean(std::string_view word, const std::vector<std::string>& names,
                         const std::string& dashes = "") {
  const std::string name = nearest(word, names);
  const std::size_t edits_max = std::max<std::size_t>(1, word.size() / 3);
  if (name.empty() || edit_distance(word, name) > edits_max) return {};
  return "; did you mean '" + dashes + name + "'?";
}

bool looks_like_a_model(const std::string& word) {
  std::error_code failed;
  return word.find('/') != std::string::npos || std::filesystem::exists(word, failed);
}

/// The last command that the line names, and all of its words: "troupe plan eplb".
std::pair<const CLI::App*, std::string> last_command(const CLI::App* app) {
  std::string words = "troupe";
  for (auto used = app->get_subcommands(); !used.empty(); used = app->get_subcommands()) {
    app = used.front();
    words += " " + app->get_name();
  }
  return {app, words};
}

std::vector<std::string> command_names(const CLI::App& app) {
  std::vector<std::string> names;
  for (const CLI::App* command : app.get_subcommands([](const CLI::App*) { return true; }))
    names.push_back(command->get_name());
  return names;
}

}  // namespace

std::string usage_error(const CLI::App* app, const CLI::Error& error) {
  const auto [command, words] = last_command(app);
  // Words that nobody takes are the cause of most that is missing.
  const auto left = app->remaining(true);
  const auto flag = std::find_if(left.begin(), left.end(),
                                 [](const auto& word) { return word.starts_with("-"); });
  std::string text;
  if (flag != left.end()) {
    const std::string name = flag->substr(0, flag->find('='));
    const auto first = std::min(name.find_first_not_of('-'), name.size());
    text = "'" + name + "' is no flag of `" + words + "`" +
           did_you_mean(name.substr(first), flag_names(*command), "--");
  } else if (!left.empty()) {
    text = "'" + left.front() + "' is not expected";
    if (looks_like_a_model(left.front()) && command->get_option_no_throw("--model"))
      text += "; did you mean '--model " + left.front() + "'?";
    else
      text += did_you_mean(left.front(), command_names(*command));
  } else {
    text = error.what();
    while (!text.empty() && (text.back() == '.' || text.back() == '\n')) text.pop_back();
  }
  return "troupe: " + text + (text.ends_with('?') ? " `" : "; `") + words +
         " --help` tells more.\n";
}

std::string unknown_command(const CLI::App& app, const std::string& word) {
  std::string hint = did_you_mean(word, command_names(app));
  for (const auto& [other, ours] : kElsewhere)
    if (word == other) hint = "; did you mean '" + std::string(ours) + "'?";
  return "There is no command '" + word + "'" +
         (hint.empty() ? "; `troupe --help` lists them." : hint);
}

std::vector<std::string> flag_names(const CLI::App& command) {
  std::vector<std::string> names;
  for (const CLI::Option* option : command.get_options())
    if (!option->get_lnames().empty() && !option->get_group().empty())
      names.push_back(option->get_lnames().front());
  return names;
}

std::string nearest(std::string_view word, const std::vector<std::string>& names) {
  const auto best = std::min_element(names.begin(), names.end(), [&](auto& a, auto& b) {
    return edit_distance(word, a) < edit_distance(word, b);
  });
  return best == names.end() ? "" : *best;
}

}  // namespace troupe::cli
