// The one unit that sees CLI11, whose headers and templates take seconds to compile.
#include "tools/troupe/command_line/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/version.h"

namespace troupe::cli {
namespace {

template <class T>
struct NumberOf {
  using type = T;
};
template <class T>
struct NumberOf<std::optional<T>> {
  using type = T;
};

template <class Number>
CLI::Validator within(const Range& range) {
  if (range == kPositive) return CLI::PositiveNumber;
  return CLI::Range(static_cast<Number>(range.min), static_cast<Number>(range.max));
}

CLI::Option* add(CLI::App& app, const Flag& flag, Print print) {
  if (print == Print::kHelp) return app.set_help_flag("-h," + flag.name, flag.help);
  return app.set_version_flag(flag.name, kVersion, flag.help);
}

CLI::Option* add(CLI::App& app, const Flag& flag, bool* target) {
  return app.add_flag(flag.name, *target, flag.help);
}

template <class Value>
CLI::Option* add(CLI::App& app, const Flag& flag, Value* target) {
  CLI::Option* option = app.add_option(flag.name, *target, flag.help);
  using Number = typename NumberOf<Value>::type;
  if constexpr (std::is_arithmetic_v<Number>)
    if (flag.range) option->check(within<Number>(*flag.range));
  if constexpr (std::is_same_v<Value, std::vector<std::int32_t>>) option->delimiter(',');
  return option;
}

CLI::Option* add(CLI::App& app, const Flag& flag) {
  CLI::Option* option =
      std::visit([&](auto target) { return add(app, flag, target); }, flag.target);
  option->group(flag.group)->required(flag.required);
  if (flag.one_value_each) option->allow_extra_args(false);
  return option;
}

using Options = std::vector<std::pair<Flag*, const CLI::Option*>>;

void build(CLI::App& app, Command& command, Options& options) {
  app.set_help_flag();  // it is one of the flags, where there is one
  for (Flag& flag : command.flags) options.emplace_back(&flag, add(app, flag));
  for (Command& below : command.below)
    build(*app.add_subcommand(below.name, below.description), below, options);
  if (!command.below.empty()) app.require_subcommand(command.run ? 0 : 1, 1);
  std::string end = command.notes;
  if (!end.empty() && !command.examples.empty()) end += '\n';
  if (!command.examples.empty()) end += "Examples:\n" + command.examples;
  app.footer(end);
}

/// The last command that the line names.
Parsed last_command(const CLI::App* app, Command& root) {
  Parsed last{.command = &root, .path = root.name};
  for (auto used = app->get_subcommands(); !used.empty(); used = app->get_subcommands()) {
    app = used.front();
    last.command = find_below(*last.command, app->get_name());
    last.path += " " + app->get_name();
  }
  return last;
}

}  // namespace

Parsed parse(Command& root, std::vector<std::string> words) {
  CLI::App app(root.description, root.name);
  Options options;
  build(app, root, options);
  std::reverse(words.begin(), words.end());  // as the library wants them
  Parsed::Kind kind = Parsed::Kind::kRun;
  std::string text;
  try {
    app.parse(words);
  } catch (const CLI::CallForHelp&) {
    kind = Parsed::Kind::kPrint;
    text = app.help();
  } catch (const CLI::CallForVersion& e) {
    kind = Parsed::Kind::kPrint;
    text = std::string(e.what()) + "\n";
  } catch (const CLI::ParseError& e) {
    kind = Parsed::Kind::kWrong;
    text = e.what();
  }
  Parsed parsed = last_command(&app, root);
  parsed.kind = kind;
  parsed.text = std::move(text);
  parsed.left = app.remaining(true);
  for (const auto& [flag, option] : options) flag->given = option->count() > 0;
  return parsed;
}

Status set_flag(Flag& flag, const std::vector<std::string>& values) {
  CLI::App app;
  CLI::Option* option = add(app, flag);
  try {
    for (const std::string& value : values) option->add_result(value);
    if (!values.empty()) option->run_callback();
  } catch (const CLI::Error& e) {
    return invalid_argument(e.what());
  }
  flag.given = !values.empty();
  return {};
}

}  // namespace troupe::cli
