#include "tools/troupe/config_file.h"

#include <toml++/toml.h>
#include <sstream>
#include <vector>

#include "tools/troupe/usage.h"

namespace troupe::cli {
namespace {

std::string nearest_flag(const CLI::App& command, const std::string& key) {
  auto names = flag_names(command);
  std::erase_if(names, [](const auto& name) { return name == "help" || name == "config"; });
  return nearest(key, names);
}

/// A TOML value as the command line would write it.
Result<std::string> as_text(const toml::node& node, const std::string& key) {
  if (const auto* s = node.as_string()) return s->get();
  if (const auto* b = node.as_boolean()) return std::string(b->get() ? "true" : "false");
  if (node.is_integer() || node.is_floating_point()) {
    std::ostringstream text;
    if (const auto* i = node.as_integer()) text << i->get();
    if (const auto* f = node.as_floating_point()) text << f->get();
    return text.str();
  }
  return invalid_argument("'" + key +
                          "' must be a text, a number, true or false, or a list of those.");
}

Status apply(CLI::App& command, const std::string& key, const toml::node& node,
             const std::string& path) {
  CLI::Option* option = command.get_option_no_throw("--" + key);
  if (!option || key == "config" || key == "help")
    return invalid_argument("'" + key + "' in " + path + " is no flag of `troupe " +
                            command.get_name() + "`; did you mean '" + nearest_flag(command, key) +
                            "'?");
  if (option->count() > 0) return {};  // the command line has it
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
  try {
    for (const auto& value : values) option->add_result(value);
    if (!values.empty()) option->run_callback();
  } catch (const CLI::Error& e) {
    return invalid_argument("'" + key + "' in " + path +
                            " has a value that the flag does not take (" + e.what() + ").");
  }
  return {};
}

}  // namespace

Status apply_config_file(CLI::App& command, const std::string& path) {
  toml::table table;
  try {
    table = toml::parse_file(path);
  } catch (const toml::parse_error& e) {
    std::ostringstream where;
    where << e.source().begin;
    return invalid_argument("The configuration file " + path + " cannot be read (" +
                            std::string(e.description()) + ", " + where.str() + ").");
  }
  for (const auto& [key, node] : table)
    if (const Status applied = apply(command, std::string(key.str()), node, path); !applied.ok())
      return applied;
  return {};
}

}  // namespace troupe::cli
