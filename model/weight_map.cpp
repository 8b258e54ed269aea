#include "model/weight_map.h"

#include <dirent.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "model/file_error.h"
#include "model/json_reader.h"
#include "model/model_path.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kWhole = "model.safetensors";
constexpr std::string_view kPart = "model-";

/// A name in the index must be a file of the folder itself. (It may be a link: that is how Hugging
/// Face's cache keeps its files.)
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != "." && name != ".." &&
         name.ends_with(kSuffix);
}

/// "model-00001-of-00002.safetensors".
bool is_part(const std::string& name) {
  return name.starts_with(kPart) && name.find("-of-", kPart.size()) != std::string::npos;
}

using Names = std::set<std::string>;

/// Links that lead nowhere count: they say what is missing when they are opened.
Result<Names> list_safetensors(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (!dir) return file_error(folder, "cannot be listed", errno);
  Names names;
  while (const dirent* entry = ::readdir(dir)) {
    std::string name = entry->d_name;
    if (name.ends_with(kSuffix) && name.size() > kSuffix.size()) names.insert(std::move(name));
  }
  ::closedir(dir);
  return names;
}

using Index = std::map<std::string, std::string>;

Result<Index> read_index(const std::string& path) {
  auto text = read_text_file(path, limits::kSafetensorsHeaderBytesMax);
  if (!text && text.error().code == ErrorCode::kNotFound) return Index{};
  if (!text) return text.error();
  auto parsed = parse_json(*text, path);
  if (!parsed) return parsed.error();
  const auto found = parsed->is_object() ? parsed->find("weight_map") : parsed->end();
  if (found == parsed->end() || !found->is_object())
    return corrupt(path + ": weight_map should be an object from tensor to file name");
  Index index;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>()))
      return corrupt(
          path + ": tensor " + tensor.substr(0, 256) +
          " should be in a *.safetensors file of the same folder, but is in " +
          file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 256));
    index.emplace(tensor, file.get<std::string>());
  }
  return index;
}

Names chosen_without_index(const Names& there) {
  if (there.contains(kWhole)) return {kWhole};
  Names parts;
  std::ranges::copy_if(there, std::inserter(parts, parts.end()), is_part);
  return parts.empty() ? there : parts;
}

}  // namespace

Result<WeightMap> find_weight_files(const std::string& folder) {
  auto there = list_safetensors(folder);
  if (!there) return there.error();
  auto index = read_index(folder + "/" + kWeightIndex);
  if (!index) return index.error();
  Names chosen;
  for (const auto& [tensor, file] : *index)
    if (there->contains(file)) chosen.insert(file);
  WeightMap map;
  if (!chosen.empty())
    map.index = std::move(*index);
  else
    chosen = chosen_without_index(*there);
  if (chosen.empty())
    return not_found(folder +
                     " has no *.safetensors file, which is what weights are read from: give a "
                     "checkpoint's folder that has them (*.bin and *.pth files can be converted)" +
                     pull_advice(folder));
  std::ranges::set_difference(*there, chosen, std::back_inserter(map.beside));
  map.files.assign(chosen.begin(), chosen.end());
  return map;
}

}  // namespace troupe
