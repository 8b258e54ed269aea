#include "tools/troupe/command_line/completion_scripts.h"

#include <functional>
#include <string_view>
#include <variant>
#include <vector>

namespace troupe::cli {
namespace {

constexpr std::string_view kHelp = "help", kHelpDescription = "The help of a command";

/// A command with the place that it has: "plan eplb" below "plan", which is below "".
struct Place {
  std::string path, parent;
  const Command* command;
};

void walk(const Command& command, const std::string& path, const std::string& parent,
          std::vector<Place>& places) {
  places.push_back({path, parent, &command});
  for (const Command& below : command.below)
    walk(below, path + (path.empty() ? "" : " ") + below.name, path, places);
}

/// The program itself, and all commands.
std::vector<Place> places_of(const Command& root) {
  std::vector<Place> places;
  walk(root, "", "", places);
  return places;
}

bool takes_value(const Flag& flag) {
  return !std::holds_alternative<Print>(flag.target) && !std::holds_alternative<bool*>(flag.target);
}

/// With a backslash before each of `special`.
std::string escaped(std::string_view text, std::string_view special) {
  std::string out;
  for (const char c : text) {
    if (special.find(c) != std::string_view::npos) out += '\\';
    out += c == '\n' ? ' ' : c;
  }
  return out;
}

/// For bash and zsh, whose quotes end at every quote.
std::string shell_quoted(std::string_view text) {
  std::string out = "'";
  for (const char c : text)
    if (c == '\'')
      out += "'\\''";
    else
      out += c == '\n' ? ' ' : c;
  return out + "'";
}

/// The lines of a `case` that finds the command that the words before the cursor name.
std::string path_cases(const std::vector<Place>& places) {
  std::string out;
  for (const Place& c : places)
    if (!c.path.empty())
      out += "      " + shell_quoted(c.parent + "/" + c.command->name) +
             ") command=" + shell_quoted(c.path) + " ;;\n";
  return out;
}

std::string values_text(const Flag& flag) {
  std::string out;
  for (const std::string& value : flag.values) out += (out.empty() ? "" : " ") + value;
  return out;
}

/// "--model", or "-m|--model": alternatives of a `case`.
std::string pattern(const Flag& flag) {
  return flag.short_name.empty() ? flag.name : flag.short_name + "|" + flag.name;
}

/// The lines of a `case` for flags that have certain values: `take` makes use of them.
std::string value_cases(const Command& command, const std::string& indent,
                        const std::function<std::string(const std::string&)>& take) {
  std::string out;
  for (const Flag* flag : shown_flags(command))
    if (!flag->values.empty())
      out += indent + pattern(*flag) + ") " + take(values_text(*flag)) + "; return ;;\n";
  return out;
}

/// Flags after which any other value is to come, as alternatives of a `case`.
std::string valued_flags(const Command& command) {
  std::string out;
  for (const Flag* flag : shown_flags(command))
    if (takes_value(*flag) && flag->values.empty())
      out += (out.empty() ? "" : "|") + pattern(*flag);
  return out.empty() ? "''" : out;
}

/// "name:description" for zsh's _describe.
std::string described(std::string_view name, std::string_view description) {
  return " " + shell_quoted(escaped(name, ":\\") + ":" + escaped(description, ":\\"));
}

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

/// What may follow a flag, as fish's `complete` is told it.
std::string taken(const Flag& flag) {
  if (!takes_value(flag)) return "";
  return flag.values.empty() ? " -r -F" : " -x -a " + fish_quoted(values_text(flag));
}

}  // namespace

std::string bash_completion(const Command& root) {
  const std::vector<Place> places = places_of(root);
  std::string out =
      "# bash completion of troupe: source <(troupe completion bash)\n"
      "_troupe() {\n"
      "  local current=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command='' words='' i\n"
      "  # --flag=value comes as three words.\n"
      "  [[ $current == '=' ]] && current=''\n"
      "  [[ $before == '=' ]] && before=${COMP_WORDS[COMP_CWORD-2]}\n"
      "  for ((i = 1; i < COMP_CWORD; ++i)); do\n"
      "    case \"$command/${COMP_WORDS[i]}\" in\n" +
      path_cases(places) +
      "    esac\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  case $command in\n";
  for (const Place& c : places) {
    std::string words = c.path.empty() ? std::string(kHelp) : "";
    for (const Command& below : c.command->below) words += " " + below.name;
    for (const Flag* flag : shown_flags(*c.command))
      words += (flag->short_name.empty() ? "" : " " + flag->short_name) + " " + flag->name;
    out += "    " + shell_quoted(c.path) + ")\n      case $before in\n" +
           value_cases(*c.command, "        ",
                       [](const std::string& values) {
                         return "mapfile -t COMPREPLY < <(compgen -W " + shell_quoted(values) +
                                " -- \"$current\")";
                       }) +
           "        " + valued_flags(*c.command) +
           ")\n          compopt -o filenames 2>/dev/null\n"
           "          mapfile -t COMPREPLY < <(compgen -f -- \"$current\")\n"
           "          return ;;\n      esac\n      words=" +
           shell_quoted(words) + " ;;\n";
  }
  return out +
         "  esac\n"
         "  mapfile -t COMPREPLY < <(compgen -W \"$words\" -- \"$current\")\n"
         "}\n"
         "complete -F _troupe troupe\n";
}

std::string zsh_completion(const Command& root) {
  const std::vector<Place> places = places_of(root);
  std::string out =
      "#compdef troupe\n"
      "# zsh completion of troupe: troupe completion zsh > \"${fpath[1]}/_troupe\"\n"
      "_troupe() {\n"
      "  local command='' before=${words[CURRENT-1]} i\n"
      "  local -a below flags\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    case \"$command/${words[i]}\" in\n" +
      path_cases(places) +
      "    esac\n"
      "  done\n"
      "  case $command in\n";
  for (const Place& c : places) {
    out += "    " + shell_quoted(c.path) + ")\n      case $before in\n" +
           value_cases(*c.command, "        ",
                       [](const std::string& values) { return "compadd " + values; }) +
           "        " + valued_flags(*c.command) + ") _files; return ;; esac\n      below=(";
    if (c.path.empty()) out += described(kHelp, kHelpDescription);
    for (const Command& below : c.command->below) out += described(below.name, below.description);
    out += " )\n      flags=(";
    for (const Flag* flag : shown_flags(*c.command)) {
      if (!flag->short_name.empty()) out += described(flag->short_name, flag->help);
      out += described(flag->name, flag->help);
    }
    out += " ) ;;\n";
  }
  return out +
         "  esac\n"
         "  (( $#below )) && _describe -t commands command below\n"
         "  _describe -o flag flags\n"
         "}\n"
         "if [[ ${funcstack[1]} == _troupe ]]; then _troupe \"$@\"; else compdef _troupe troupe; "
         "fi\n";
}

std::string fish_completion(const Command& root) {
  const std::vector<Place> places = places_of(root);
  std::string out =
      "# fish completion of troupe: troupe completion fish > "
      "~/.config/fish/completions/troupe.fish\n"
      "function __troupe_command\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..]\n"
      "    switch \"$command/$word\"\n";
  for (const Place& c : places)
    if (!c.path.empty())
      out += "      case " + fish_quoted(c.parent + "/" + c.command->name) +
             "\n        set command " + fish_quoted(c.path) + "\n";
  out +=
      "    end\n"
      "  end\n"
      "  test \"$command\" = \"$argv\"\n"
      "end\n"
      "complete -c troupe -f\n";
  for (const Place& c : places) {
    const std::string line =
        "complete -c troupe -n " + fish_quoted("__troupe_command " + fish_quoted(c.path));
    const auto word = [&](std::string_view name, std::string_view description) {
      out += line + " -a " + std::string(name) + " -d " + fish_quoted(description) + "\n";
    };
    if (c.path.empty()) word(kHelp, kHelpDescription);
    for (const Command& below : c.command->below) word(below.name, below.description);
    for (const Flag* flag : shown_flags(*c.command))
      out += line + (flag->short_name.empty() ? "" : " -s " + flag->short_name.substr(1)) + " -l " +
             flag->name.substr(2) + taken(*flag) + " -d " + fish_quoted(flag->help) + "\n";
  }
  return out;
}

}  // namespace troupe::cli
