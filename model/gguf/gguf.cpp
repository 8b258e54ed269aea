#include "model/gguf/gguf.h"

#include <algorithm>
#include <filesystem>

#include "model/model_path.h"
#include "runtime/limits.h"

namespace troupe {

namespace fs = std::filesystem;

Result<std::optional<std::string>> find_gguf(const std::string& model) {
  std::error_code error;
  if (fs::is_regular_file(model, error))
    return std::optional(model);  // nothing else is served from a single file
  if (const Status there = check_model_path(model); !there) return there.error();
  std::vector<std::string> found;
  if (!fs::is_directory(model, error) || fs::exists(fs::path(model) / "config.json", error))
    return std::optional<std::string>();
  for (fs::directory_iterator at(model, error), end; !error && at != end; at.increment(error))
    if (at->path().extension() == ".gguf") found.push_back(at->path().string());
  if (found.empty()) return std::optional<std::string>();
  if (found.size() > 1)
    return invalid_argument(model + " has " + std::to_string(found.size()) +
                            " GGUF files and no config.json; give the one that is meant");
  return std::optional(found.front());
}

Result<GgufFile> open_gguf(const std::string& path) {
  const fs::path place(path);
  auto file = WeightFile::open(place.has_parent_path() ? place.parent_path().string() : ".",
                               place.filename().string());
  if (!file) return file.error();
  GgufFile opened{std::move(*file), {}, {}};
  const std::uint64_t size = opened.file->size();
  opened.head.resize(
      static_cast<std::size_t>(std::min<std::uint64_t>(size, limits::kGgufHeadBytesMax)));
  const auto bytes = std::as_writable_bytes(std::span(opened.head));
  if (auto status = opened.file->read(0, bytes); !status) return status.error();
  if (auto status = opened.file->unchanged(); !status) return status.error();
  auto header = parse_gguf(bytes, size, opened.file->path());
  if (!header) return header.error();
  opened.header = std::move(*header);
  opened.head.resize(static_cast<std::size_t>(
      std::min<std::uint64_t>(opened.header.data_offset, opened.head.size())));
  return opened;
}

}  // namespace troupe
