#include "model/model_path.h"

#include <algorithm>
#include <filesystem>
#include <string_view>
#include <vector>

#include "model/file_error.h"

namespace troupe {

namespace {

/// As the hub has it: two hyphens stand for a slash in its cache.
bool is_part(std::string_view name) {
  return !name.empty() && !name.starts_with('.') && name.find("--") == name.npos &&
         std::all_of(name.begin(), name.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                  c == '.' || c == '_' || c == '-';
         });
}

/// Of two parts, with a slash between them.
bool is_pair(std::string_view name) {
  const auto slash = name.find('/');
  return slash != name.npos && is_part(name.substr(0, slash)) && is_part(name.substr(slash + 1));
}

/// A branch, a tag or a commit; or of a pull request, as refs/pr/1.
bool is_revision(std::string_view name) {
  for (auto slash = name.find('/'); slash != name.npos; slash = name.find('/')) {
    if (!is_part(name.substr(0, slash))) return false;
    name.remove_prefix(slash + 1);
  }
  return is_part(name);
}

}  // namespace

std::optional<HubModel> parse_hub_model(const std::string& model) {
  const auto at = model.find('@');
  HubModel found{.name = model.substr(0, at)};
  if (at != model.npos) found.revision = model.substr(at + 1);
  if (!is_pair(found.name)) return std::nullopt;
  if (!is_revision(found.revision)) return std::nullopt;
  return found;
}

std::optional<HubModel> snapshot_model(const std::string& path) {
  constexpr std::string_view kModels = "models--";
  const std::filesystem::path whole(path);
  const std::vector<std::string> parts(whole.begin(), whole.end());
  for (std::size_t i = 0; i + 2 < parts.size(); ++i) {
    if (!parts[i].starts_with(kModels)) continue;
    const std::size_t at = i + (parts[i + 1] == "head" ? 2 : 1);
    if (at + 1 >= parts.size() || parts[at] != "snapshots") continue;
    std::string name = parts[i].substr(kModels.size());
    if (const auto slash = name.find("--"); slash != name.npos) name.replace(slash, 2, "/");
    if (auto model = parse_hub_model(name + "@" + parts[at + 1])) return model;
  }
  return std::nullopt;
}

std::string pull_advice(const std::string& path) {
  const auto model = snapshot_model(path);
  if (!model) return {};
  return "; if the model is here in part, `troupe pull " + model->name + "@" + model->revision +
         "` brings the rest, for --model " + model->name + "@" + model->revision;
}

Status check_model_path(const std::string& model) {
  std::error_code error;
  const auto there = std::filesystem::status(model, error);
  if (there.type() != std::filesystem::file_type::not_found) return {};
  // Behind a folder that is there it is a path that somebody misspelt.
  std::error_code ignored;
  const bool below = std::filesystem::is_directory(model.substr(0, model.find('/')), ignored);
  if (below || !parse_hub_model(model)) return file_error(model, "cannot be opened", error.value());
  return not_found("There is no folder " + model +
                   " here, and it is not in the hub's cache; run `troupe pull " + model +
                   "` first; for `troupe plan`, `troupe pull " + model +
                   " --include config.json` is enough.");
}

}  // namespace troupe
