#include "tools/troupe/config_file.h"

#include <toml++/toml.h>
#include <algorithm>
#include <numeric>
#include <sstream>
#include <vector>

namespace troupe::cli {
namespace {

std::string nearest_flag(const CLI::App& command, const std::string& key) {
  std::string best;
  int best_distance = 0;
  for (const CLI::Option* option : command.get_options()) {
    if (option->get_lnames().empty()) continue;
    const std::string& name = option->get_lnames().front();
    if (name == "help" || name == "config") continue;
    const int distance = edit_distance(key, name);
    if (best.empty() || distance < best_distance) best = name, best_distance = distance;
  }
  return best;
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

int edit_distance(const std::string& a, const std::string& b) {
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (std::size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const int above = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

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
