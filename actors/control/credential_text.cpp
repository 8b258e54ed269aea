#include "actors/control/credential_text.h"

#include <algorithm>

#include "actors/control/credentials.h"

namespace troupe::control {
namespace {

constexpr std::size_t kEntriesMax = kRevokedMax + 128;

/// The next line without its end; false at the end of the text.
bool next_line(std::string_view& rest, std::string_view& line) {
  if (rest.empty()) return false;
  const std::size_t end = std::min(rest.find('\n'), rest.size());
  line = rest.substr(0, end);
  rest.remove_prefix(std::min(end + 1, rest.size()));
  if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
  return true;
}

bool is_plain(std::string_view text) {
  return std::ranges::all_of(
      text, [](char c) { return (c >= ' ' && c <= '~') || c == '\n' || c == '\r' || c == '\t'; });
}

bool is_number(std::string_view text) {
  return !text.empty() && std::ranges::all_of(text, [](char c) { return c >= '0' && c <= '9'; });
}

}  // namespace

std::string format_entries(std::string_view title, const std::vector<Entry>& entries) {
  std::string text = std::string(title) + "\n";
  for (const auto& [key, value] : entries) {
    const bool block = value.starts_with("-----BEGIN ");
    text += key + (block ? "\n" : " ") + value;
    if (!text.ends_with('\n')) text += '\n';
  }
  return text;
}

Result<std::vector<Entry>> parse_entries(std::string_view title, std::string_view text) {
  if (!is_plain(text)) return corrupt("holds bytes that are no plain text");
  std::string_view line;
  const bool titled = next_line(text, line);
  const auto name = title.substr(0, title.rfind(' ') + 1);
  if (titled && line != title && line.starts_with(name) && is_number(line.substr(name.size())))
    return refused("was written by another version of Troupe");
  if (!titled || line != title)
    return corrupt("does not begin with the line \"" + std::string(title) + "\"");
  std::vector<Entry> entries;
  while (next_line(text, line)) {
    if (line.empty() || line.front() == '#') continue;
    if (line.starts_with("-----BEGIN ")) {
      if (entries.empty() || !entries.back().second.empty())
        return corrupt("has a PEM block that nothing names");
      std::string& block = entries.back().second;
      do {
        block += std::string(line) + "\n";
        if (line.starts_with("-----END ")) break;
      } while (next_line(text, line));
      if (!line.starts_with("-----END ")) return corrupt("ends in the middle of a PEM block");
      continue;
    }
    if (entries.size() == kEntriesMax) return corrupt("has too many lines");
    const std::size_t space = line.find(' ');
    entries.emplace_back(line.substr(0, space),
                         space == line.npos ? std::string_view() : line.substr(space + 1));
  }
  return entries;
}

std::string only_value(const std::vector<Entry>& entries, std::string_view key) {
  std::string value;
  int count = 0;
  for (const auto& [name, content] : entries)
    if (name == key) ++count, value = content;
  return count == 1 ? value : std::string();
}

}  // namespace troupe::control
