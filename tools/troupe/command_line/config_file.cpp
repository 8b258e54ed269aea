#include "tools/troupe/command_line/config_file.h"

#include <toml++/toml.h>
#include <charconv>
#include <sstream>
#include <vector>

#include "model/json_reader.h"
#include "tools/troupe/command_line/parse.h"
#include "tools/troupe/command_line/usage.h"

namespace troupe::cli {
namespace {

constexpr std::size_t kBytesMax = 1u << 20;

std::string like_a_flag(const Command& command, const std::string& key) {
  std::vector<const Flag*> flags = shown_flags(command);
  std::erase_if(
      flags, [](const Flag* flag) { return flag->name == "--help" || flag->name == "--config"; });
  return flag_hint(flags, key);
}

/// A TOML value as the command line would write it.
Result<std::string> as_text(const toml::node& node, const std::string& key) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* b = node.as_boolean()) return std::string(b->get() ? "true" : "false");
  if (const auto* i = node.as_integer()) return std::to_string(i->get());
  if (const auto* f = node.as_floating_point()) {
    char text[32];
    return std::string(text, std::to_chars(text, text + sizeof text, f->get()).ptr);
  }
  return invalid_argument("'" + key +
                          "' must be a text, a number, true or false, or a list of those.");
}

Status apply(Command& command, const std::string& words, const std::string& key,
             const toml::node& node, const std::string& path) {
  Flag* flag = find_flag(command, "--" + key);
  if (!flag || key == "config" || key == "help") {
    const std::string hint = like_a_flag(command, key);
    return invalid_argument("'" + key + "' in " + path + " is no flag of `" + words + "`" +
                            (hint.empty() ? "; `" + words + " --help` lists them." : hint));
  }
  if (flag->given) return {};  // the command line has it
  std::vector<std::string> values;
  if (const auto* list = node.as_array()) {
    for (const auto& item : *list) {
      auto text = as_text(item, key);
      if (!text.ok()) return text.error();
      values.push_back(std::move(*text));
    }
  } else {
    auto text = as_text(node, key);
    if (!text.ok()) return text.error();
    values.push_back(std::move(*text));
  }
  if (const Status set = set_flag(*flag, values); !set.ok())
    return invalid_argument("'" + key + "' in " + path +
                            " has a value that the flag does not take (" + set.error().message +
                            ").");
  return {};
}

}  // namespace

Status apply_config_file(Command& command, const std::string& words, const std::string& path) {
  const auto text = read_text_file(path, kBytesMax);
  if (!text.ok()) return invalid_argument("--config: " + text.error().message);
  toml::table table;
  try {
    table = toml::parse(*text);
  } catch (const toml::parse_error& e) {
    std::ostringstream where;
    where << e.source().begin;
    return invalid_argument("The configuration file " + path + " cannot be read (" +
                            std::string(e.description()) + ", " + where.str() + ").");
  }
  for (const auto& [key, node] : table)
    if (const Status applied = apply(command, words, std::string(key.str()), node, path);
        !applied.ok())
      return applied;
  return {};
}

}  // namespace troupe::cli
