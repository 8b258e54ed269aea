// The one unit that sees CLI11, whose headers and templates take seconds to compile.
#include "tools/troupe/command_line/parse.h"

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "runtime/version.h"

namespace troupe::cli {
namespace {

constexpr int kMany = CLI::detail::expected_max_vector_size;

template <class T>
struct NumberOf {
  using type = T;
};
template <class T>
struct NumberOf<std::optional<T>> {
  using type = T;
};

CLI::Validator positive() {
  return {[](std::string& text) {
            const bool is = std::strtod(text.c_str(), nullptr) > 0;
            return is ? std::string() : "Value " + text + " is not above 0";
          },
          "POSITIVE"};
}

template <class Number>
CLI::Validator within(const Range& range) {
  if (range == kPositive) return positive();
  return CLI::Range(static_cast<Number>(range.min), static_cast<Number>(range.max));
}

/// The whole text as a decimal number. The library by itself takes "" as 0, "010" as 8, and "-1" as
/// the largest number without a sign.
template <class Number>
std::optional<Number> number_of(std::string_view text) {
  if (text.starts_with('+') && !text.starts_with("+-")) text.remove_prefix(1);
  Number number{};
  const char* const end = text.data() + text.size();
  const auto read = std::from_chars(text.data(), end, number);
  if (read.ec != std::errc() || read.ptr != end) return std::nullopt;
  if constexpr (std::is_floating_point_v<Number>)
    if (!std::isfinite(number)) return std::nullopt;
  return number;
}

template <class Number>
std::string not_a_number(const std::string& text) {
  std::string error = "'" + text + "' is no number";
  if constexpr (std::is_integral_v<Number>)
    error = "'" + text + "' is no whole number from " +
            std::to_string(std::numeric_limits<Number>::min()) + " to " +
            std::to_string(std::numeric_limits<Number>::max());
  return error;
}

template <class Number>
CLI::Validator decimal() {
  return {[](std::string& text) {
            const auto number = number_of<Number>(text);
            if (!number) return not_a_number<Number>(text);
            if constexpr (std::is_integral_v<Number>) text = std::to_string(*number);
            return std::string();
          },
          ""};
}

/// As the library wants them: "-m,--model".
std::string names_of(const Flag& flag) {
  return flag.short_name.empty() ? flag.name : flag.short_name + "," + flag.name;
}

CLI::Option* add(CLI::App& app, const Flag& flag, Print print) {
  if (print == Print::kHelp) return app.set_help_flag(names_of(flag), flag.help);
  return app.set_version_flag(names_of(flag), kVersion, flag.help);
}

CLI::Option* add(CLI::App& app, const Flag& flag, bool* target) {
  return app.add_flag(names_of(flag), *target, flag.help);
}

template <class Value>
CLI::Option* add(CLI::App& app, const Flag& flag, Value* target) {
  CLI::Option* option = app.add_option(names_of(flag), *target, flag.help);
  using Number = typename NumberOf<Value>::type;
  if constexpr (std::is_arithmetic_v<Number>) {
    option->transform(decimal<Number>());
    if (flag.range) option->check(within<Number>(*flag.range));
  }
  return option;
}

/// Numbers with commas between them, of which none is empty.
CLI::Option* add(CLI::App& app, const Flag& flag, std::vector<std::int32_t>* target) {
  const auto read = [target](const CLI::results_t& words) {
    target->clear();
    for (std::string_view left : words)
      for (bool more = true; more;) {
        const std::size_t comma = std::min(left.find(','), left.size());
        const auto number = number_of<std::int32_t>(left.substr(0, comma));
        if (!number) return false;
        target->push_back(*number);
        more = comma < left.size();
        left.remove_prefix(comma + (more ? 1 : 0));
      }
    return true;
  };
  return app.add_option(names_of(flag), read, flag.help)->type_name("INT,...")->expected(1, kMany);
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
  for (const auto& [flag, option] : options) {
    flag->given = option->count() > 0;
    const bool own = find_flag(*parsed.command, flag->name) == flag;
    if (own || !flag->given || kind != Parsed::Kind::kRun) continue;
    parsed.kind = Parsed::Kind::kWrong;  // it is of a command above, which does not run
    parsed.text = flag->name + " is no flag of `" + parsed.path + "`";
  }
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
