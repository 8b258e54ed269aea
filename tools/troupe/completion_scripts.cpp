#include "tools/troupe/completion_scripts.h"

#include <functional>
#include <string_view>
#include <vector>

namespace troupe::cli {
namespace {

constexpr std::string_view kHelp = "help", kHelpDescription = "The help of a command";

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
std::string path_cases(const std::vector<CommandWords>& commands) {
  std::string out;
  for (const CommandWords& c : commands)
    if (!c.path.empty())
      out += "      " + shell_quoted(c.parent + "/" + c.name) +
             ") command=" + shell_quoted(c.path) + " ;;\n";
  return out;
}

std::string values_text(const FlagWords& flag) {
  std::string out;
  for (const std::string& value : flag.values) out += (out.empty() ? "" : " ") + value;
  return out;
}

/// The lines of a `case` for flags that have certain values: `take` makes use of them.
std::string value_cases(const CommandWords& command, const std::string& indent,
                        const std::function<std::string(const std::string&)>& take) {
  std::string out;
  for (const FlagWords& flag : command.flags)
    if (!flag.values.empty())
      out += indent + flag.name + ") " + take(values_text(flag)) + "; return ;;\n";
  return out;
}

/// Flags after which any other value is to come, as alternatives of a `case`.
std::string valued_flags(const CommandWords& command) {
  std::string out;
  for (const FlagWords& flag : command.flags)
    if (flag.takes_value && flag.values.empty()) out += (out.empty() ? "" : "|") + flag.name;
  return out.empty() ? "''" : out;
}

/// "name:description" for zsh's _describe.
std::string described(std::string_view name, std::string_view description) {
  return " " + shell_quoted(escaped(name, ":\\") + ":" + escaped(description, ":\\"));
}

std::string fish_quoted(std::string_view text) { return "'" + escaped(text, "'\\") + "'"; }

/// What may follow a flag, as fish's `complete` is told it.
std::string taken(const FlagWords& flag) {
  if (!flag.takes_value) return "";
  return flag.values.empty() ? " -r -F" : " -x -a " + fish_quoted(values_text(flag));
}

}  // namespace

std::string bash_completion(const std::vector<CommandWords>& commands) {
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
      path_cases(commands) +
      "    esac\n"
      "  done\n"
      "  COMPREPLY=()\n"
      "  case $command in\n";
  for (const CommandWords& c : commands) {
    std::string words = c.path.empty() ? std::string(kHelp) : "";
    for (const auto& [name, description] : c.below) words += " " + name;
    for (const FlagWords& flag : c.flags) words += " " + flag.name;
    out += "    " + shell_quoted(c.path) + ")\n      case $before in\n" +
           value_cases(c, "        ",
                       [](const std::string& values) {
                         return "mapfile -t COMPREPLY < <(compgen -W " + shell_quoted(values) +
                                " -- \"$current\")";
                       }) +
           "        " + valued_flags(c) +
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

std::string zsh_completion(const std::vector<CommandWords>& commands) {
  std::string out =
      "#compdef troupe\n"
      "# zsh completion of troupe: troupe completion zsh > \"${fpath[1]}/_troupe\"\n"
      "_troupe() {\n"
      "  local command='' before=${words[CURRENT-1]} i\n"
      "  local -a below flags\n"
      "  for ((i = 2; i < CURRENT; ++i)); do\n"
      "    case \"$command/${words[i]}\" in\n" +
      path_cases(commands) +
      "    esac\n"
      "  done\n"
      "  case $command in\n";
  for (const CommandWords& c : commands) {
    out +=
        "    " + shell_quoted(c.path) + ")\n      case $before in\n" +
        value_cases(c, "        ", [](const std::string& values) { return "compadd " + values; }) +
        "        " + valued_flags(c) + ") _files; return ;; esac\n      below=(";
    if (c.path.empty()) out += described(kHelp, kHelpDescription);
    for (const auto& [name, description] : c.below) out += described(name, description);
    out += " )\n      flags=(";
    for (const FlagWords& flag : c.flags) out += described(flag.name, flag.description);
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

std::string fish_completion(const std::vector<CommandWords>& commands) {
  std::string out =
      "# fish completion of troupe: troupe completion fish > "
      "~/.config/fish/completions/troupe.fish\n"
      "function __troupe_command\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..]\n"
      "    switch \"$command/$word\"\n";
  for (const CommandWords& c : commands)
    if (!c.path.empty())
      out += "      case " + fish_quoted(c.parent + "/" + c.name) + "\n        set command " +
             fish_quoted(c.path) + "\n";
  out +=
      "    end\n"
      "  end\n"
      "  test \"$command\" = \"$argv\"\n"
      "end\n"
      "complete -c troupe -f\n";
  for (const CommandWords& c : commands) {
    const std::string line =
        "complete -c troupe -n " + fish_quoted("__troupe_command " + fish_quoted(c.path));
    const auto word = [&](std::string_view name, std::string_view description) {
      out += line + " -a " + std::string(name) + " -d " + fish_quoted(description) + "\n";
    };
    if (c.path.empty()) word(kHelp, kHelpDescription);
    for (const auto& [name, description] : c.below) word(name, description);
    for (const FlagWords& flag : c.flags)
      out += line + " -l " + flag.name.substr(2) + taken(flag) + " -d " +
             fish_quoted(flag.description) + "\n";
  }
  return out;
}

}  // namespace troupe::cli
