#include "model/tensor_directory.h"

#include <algorithm>

#include "model/model_path.h"

namespace troupe {
namespace {

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

}  // namespace

std::uint32_t TensorDirectory::add_file(std::string path) {
  paths_.push_back(std::move(path));
  return static_cast<std::uint32_t>(paths_.size() - 1);
}

Status TensorDirectory::add(std::uint32_t file, const std::string& name, TensorInfo info) {
  const auto [at, inserted] = entries_.try_emplace(name);
  if (!inserted)
    return corrupt("tensor " + name + " is in " + paths_[at->second.file] + " and in " +
                   paths_[file] + ", but should be in one file only");
  at->second.file = file;
  at->second.info = std::move(info);
  return {};
}

const TensorDirectory::Entry* TensorDirectory::find(std::string_view name) const {
  const auto found = entries_.find(name);
  return found == entries_.end() ? nullptr : &found->second;
}

Result<const TensorDirectory::Entry*> TensorDirectory::expect(const StoredPart& part) const {
  const Entry* entry = find(part.name);
  if (const auto why = missing_.find(part.name); !entry && why != missing_.end())
    return why->second;
  if (!entry)
    return corrupt(folder_ + " lacks the tensor " + part.name + ", expected with shape " +
                   shape_text(part.shape) + pull_advice(folder_));
  const TensorInfo& info = entry->info;
  if (std::find(part.dtypes.begin(), part.dtypes.end(), info.dtype) == part.dtypes.end()) {
    std::string names;
    for (const DType dtype : part.dtypes)
      names += (names.empty() ? "" : " or ") + std::string(to_string(dtype));
    return corrupt(named(part.name, *entry) + " should have dtype " + names + ", but has " +
                   std::string(to_string(info.dtype)));
  }
  if (part.shape != info.shape)
    return corrupt(named(part.name, *entry) + " should have shape " + shape_text(part.shape) +
                   ", but has " + shape_text(info.shape));
  return entry;
}

void TensorDirectory::note(const StoredPart& part, bool stacked) {
  const auto found = entries_.find(part.name);
  if (found == entries_.end()) return;
  found->second.split = part.split;
  found->second.stacked = stacked;
  found->second.used = true;
}

std::string TensorDirectory::named(std::string_view name, const Entry& entry) const {
  return paths_[entry.file] + ": tensor " + std::string(name);
}

}  // namespace troupe
