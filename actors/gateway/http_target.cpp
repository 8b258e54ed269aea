#include "actors/gateway/http_target.h"

#include <strings.h>

#include <algorithm>
#include <charconv>
#include <vector>

namespace troupe {
namespace {

bool begins_with(std::string_view text, std::string_view beginning) {
  return text.size() >= beginning.size() &&
         strncasecmp(text.data(), beginning.data(), beginning.size()) == 0;
}

std::string_view trimmed(std::string_view text) {
  const auto first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return {};
  return text.substr(first, text.find_last_not_of(" \t") + 1 - first);
}

std::optional<std::string> percent_decoded(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    if (text.front() != '%') {
      out += text.front();
      text.remove_prefix(1);
      continue;
    }
    unsigned byte = 0;
    const char* const digits = text.data() + 1;
    if (text.size() < 3 || std::from_chars(digits, digits + 2, byte, 16).ptr != digits + 2)
      return std::nullopt;
    out += static_cast<char>(byte);
    text.remove_prefix(3);
  }
  return out;
}

/// As they were sent.
std::vector<std::string_view> values_of(std::string_view query, std::string_view name) {
  std::vector<std::string_view> values;
  while (!query.empty()) {
    const std::string_view pair = query.substr(0, query.find('&'));
    query.remove_prefix(std::min(pair.size() + 1, query.size()));
    const std::size_t name_size = std::min(pair.find('='), pair.size());
    if (pair.substr(0, name_size) == name)
      values.push_back(pair.substr(std::min(name_size + 1, pair.size())));
  }
  return values;
}

}  // namespace

std::optional<HttpTarget> parse_target(std::string_view target) {
  HttpTarget out;
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (!begins_with(target, scheme)) continue;
    target.remove_prefix(scheme.size());
    out.authority = target.substr(0, target.find_first_of("/?#"));
    target.remove_prefix(out.authority.size());
    break;
  }
  target = target.substr(0, target.find('#'));
  const std::size_t path_size = std::min(target.find('?'), target.size());
  auto path = percent_decoded(target.substr(0, path_size));
  if (!path) return std::nullopt;
  if (path_size < target.size()) out.query = target.substr(path_size + 1);
  out.path = path->empty() && !out.authority.empty() ? "/" : std::move(*path);
  return out;
}

std::optional<std::string> query_value(std::string_view query, std::string_view name) {
  const std::vector<std::string_view> values = values_of(query, name);
  if (values.empty()) return std::nullopt;
  return percent_decoded(values.front()).value_or(std::string(values.front()));
}

std::optional<bool> parse_switch(std::string_view value) {
  if (value == "true" || value == "1") return true;
  if (value == "false" || value == "0") return false;
  return std::nullopt;
}

std::size_t query_count(std::string_view query, std::string_view name) {
  return values_of(query, name).size();
}

bool is_json_type(std::string_view content_type) {
  constexpr std::string_view kJson = "application/json";
  if (!begins_with(content_type, kJson)) return false;
  content_type.remove_prefix(kJson.size());
  const auto next = content_type.find_first_not_of(" \t");
  return next == std::string_view::npos || content_type[next] == ';';
}

bool is_identity(std::string_view content_encoding) {
  constexpr std::string_view kIdentity = "identity";
  while (!content_encoding.empty()) {
    const std::size_t end = std::min(content_encoding.find(','), content_encoding.size());
    const std::string_view name = trimmed(content_encoding.substr(0, end));
    const bool same = name.size() == kIdentity.size() && begins_with(name, kIdentity);
    if (!name.empty() && !same) return false;
    content_encoding.remove_prefix(std::min(end + 1, content_encoding.size()));
  }
  return true;
}

}  // namespace troupe
