#include "model/model_path.h"

#include <algorithm>
#include <filesystem>
#include <string_view>

#include "model/file_error.h"

namespace troupe {

bool is_hub_name(const std::string& model) {
  const auto part = [](std::string_view name) {
    return !name.empty() && !name.starts_with('.') &&
           std::all_of(name.begin(), name.end(), [](char c) {
             return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z') ||
                    c == '.' || c == '_' || c == '-';
           });
  };
  const auto slash = model.find('/');
  std::error_code error;
  if (std::filesystem::is_directory(model.substr(0, slash), error)) return false;
  return slash != model.npos && part(std::string_view(model).substr(0, slash)) &&
         part(std::string_view(model).substr(slash + 1));
}

Status check_model_path(const std::string& model) {
  std::error_code error;
  const auto there = std::filesystem::status(model, error);
  if (there.type() != std::filesystem::file_type::not_found) return {};
  if (!is_hub_name(model)) return file_error(model, "cannot be opened", error.value());
  const std::string folder = model.substr(model.find('/') + 1);
  return not_found("There is no folder " + model +
                   " here, and this version fetches nothing from the hub; run `huggingface-cli "
                   "download " +
                   model + " --local-dir " + folder + "` and give --model " + folder + ".");
}

}  // namespace troupe
