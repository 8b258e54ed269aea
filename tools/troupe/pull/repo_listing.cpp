#include "tools/troupe/pull/repo_listing.h"

#include <fnmatch.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "tools/troupe/pull/limits.h"

namespace troupe::pull {
namespace {

using nlohmann::json;

constexpr std::size_t kSha1Digits = 40, kSha256Digits = 64;

bool is_digest(std::string_view text, std::size_t digits) {
  return text.size() == digits && std::ranges::all_of(text, [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string text_of(const json& object, const char* key) {
  const auto at = object.find(key);
  return at != object.end() && at->is_string() ? at->get<std::string>() : std::string();
}

bool is_unreserved(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
         std::string_view("-._~/").find(c) != std::string_view::npos;
}

Result<RepoFile> file_of(const json& entry) {
  RepoFile file;
  file.path = text_of(entry, "path");
  if (!is_safe_path(file.path)) return corrupt("names a file that no folder may hold");
  const auto lfs = entry.find("lfs");
  file.is_lfs = lfs != entry.end() && lfs->is_object();
  file.digest = text_of(file.is_lfs ? *lfs : entry, "oid");
  if (file.is_lfs && file.digest.starts_with("sha256:")) file.digest.erase(0, 7);
  if (!is_digest(file.digest, file.is_lfs ? kSha256Digits : kSha1Digits))
    return corrupt("has no checksum of the file " + file.path);
  const auto size = entry.find("size");
  if (size == entry.end() || !size->is_number_unsigned() ||
      size->get<std::uint64_t>() > kRepositoryBytesMax)
    return corrupt("has no size of the file " + file.path);
  file.size = size->get<std::uint64_t>();
  return file;
}

}  // namespace

bool is_commit(std::string_view text) { return is_digest(text, kSha1Digits); }

Result<std::string> parse_commit(std::string_view text) {
  const json answer = json::parse(text, nullptr, false);
  std::string commit = answer.is_object() ? text_of(answer, "sha") : std::string();
  if (!is_digest(commit, kSha1Digits)) return corrupt("names no commit");
  return commit;
}

Result<std::vector<RepoFile>> parse_listing(std::string_view text) {
  const json answer = json::parse(text, nullptr, false);
  if (!answer.is_array()) return corrupt("is no list of files");
  if (answer.size() > kFilesMax) return corrupt("names too many files");
  std::vector<RepoFile> files;
  for (const json& entry : answer) {
    if (!entry.is_object()) return corrupt("is no list of files");
    if (text_of(entry, "type") != "file") continue;
    auto file = file_of(entry);
    if (!file.ok()) return file.error();
    files.push_back(std::move(*file));
  }
  return files;
}

bool is_safe_path(std::string_view path) {
  if (path.empty() || path.size() > kPathBytesMax) return false;
  const bool plain = std::ranges::all_of(
      path, [](unsigned char c) { return c >= 0x20 && c != 0x7f && c != '\\'; });
  while (plain) {
    const std::size_t end = std::min(path.find('/'), path.size());
    const std::string_view name = path.substr(0, end);
    if (name.empty() || name == "." || name == ".." || name.size() > kNameBytesMax) return false;
    if (end == path.size()) return true;
    path.remove_prefix(end + 1);
  }
  return false;
}

std::string next_page(std::string_view link) {
  const std::size_t rel = link.find("rel=\"next\"");
  const std::size_t open = link.substr(0, rel).rfind('<');
  if (rel == link.npos || open == link.npos) return {};
  const std::size_t close = link.find('>', open);
  if (close == link.npos || close > rel) return {};
  return std::string(link.substr(open + 1, close - open - 1));
}

std::string url_path(std::string_view path) {
  std::string text;
  for (const char c : path) {
    const auto byte = static_cast<unsigned char>(c);
    if (is_unreserved(c))
      text += c;
    else
      (text += '%') += {"0123456789ABCDEF"[byte >> 4], "0123456789ABCDEF"[byte & 15]};
  }
  return text;
}

bool is_wanted(const std::string& path, const std::vector<std::string>& include,
               const std::vector<std::string>& exclude) {
  const auto fits = [&](const std::string& glob) {
    return ::fnmatch(glob.c_str(), path.c_str(), 0) == 0;
  };
  return (include.empty() || std::ranges::any_of(include, fits)) &&
         std::ranges::none_of(exclude, fits);
}

}  // namespace troupe::pull
