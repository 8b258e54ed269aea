#include "model/checkpoint.h"

#include <dirent.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <set>

#include "model/file_error.h"
#include "model/json_reader.h"
#include "model/tensor_list.h"
#include "model/weight_file.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

std::string shape_text(std::span<const std::int64_t> shape) {
  std::string text = "[";
  for (std::size_t i = 0; i < shape.size(); ++i)
    text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

/// A name in the index must be a file of the folder itself. (It may be a link: that is how Hugging
/// Face's cache keeps its files.)
bool is_plain_name(const std::string& name) {
  return !name.empty() && name.size() < 256 && name.find('/') == std::string::npos &&
         name.find('\0') == std::string::npos && name != "." && name != ".." &&
         name.ends_with(kSuffix);
}

Result<std::vector<std::string>> list_safetensors(const std::string& folder) {
  DIR* dir = ::opendir(folder.c_str());
  if (!dir) return file_error(folder, "cannot be listed", errno);
  std::vector<std::string> names;
  while (const dirent* entry = ::readdir(dir)) {
    const std::string name = entry->d_name;
    if (name.ends_with(kSuffix) && name.size() > kSuffix.size()) names.push_back(name);
  }
  ::closedir(dir);
  std::sort(names.begin(), names.end());
  if (names.empty())
    return not_found(folder + " has no *.safetensors file; give the folder of a checkpoint");
  return names;
}

using WeightMap = std::map<std::string, std::string>;

Result<WeightMap> read_index(const std::string& path) {
  auto text = read_text_file(path, limits::kSafetensorsHeaderBytesMax);
  if (!text) return text.error();
  auto parsed = parse_json(*text, path);
  if (!parsed) return parsed.error();
  const auto found = parsed->is_object() ? parsed->find("weight_map") : parsed->end();
  if (found == parsed->end() || !found->is_object())
    return corrupt(path + ": weight_map should be an object from tensor to file name");
  WeightMap weight_map;
  for (const auto& [tensor, file] : found->items()) {
    if (!file.is_string() || !is_plain_name(file.get_ref<const std::string&>()))
      return corrupt(path + ": tensor " + tensor.substr(0, 256) +
                     " should be in a *.safetensors file of the same folder, but is in " +
                     file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace)
                         .substr(0, 256));
    weight_map.emplace(tensor, file.get<std::string>());
  }
  return weight_map;
}

/// SHA-256 over parts, each preceded by its length, so that no two lists of parts look alike.
class Sha256 {
 public:
  Sha256() : context_(EVP_MD_CTX_new()) { EVP_DigestInit_ex(context_, EVP_sha256(), nullptr); }
  ~Sha256() { EVP_MD_CTX_free(context_); }
  Sha256(const Sha256&) = delete;
  Sha256& operator=(const Sha256&) = delete;

  void add(std::string_view part) {
    const std::uint64_t size = part.size();
    EVP_DigestUpdate(context_, &size, sizeof size);
    EVP_DigestUpdate(context_, part.data(), part.size());
  }

  std::string hex() {
    unsigned char digest[EVP_MAX_MD_SIZE];
    unsigned size = 0;
    EVP_DigestFinal_ex(context_, digest, &size);
    std::string text;
    for (unsigned i = 0; i < size; ++i) {
      text += "0123456789abcdef"[digest[i] >> 4];
      text += "0123456789abcdef"[digest[i] & 15];
    }
    return text;
  }

 private:
  EVP_MD_CTX* context_;
};

}  // namespace

Checkpoint::Checkpoint() = default;
Checkpoint::~Checkpoint() = default;

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& folder) {
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint);
  checkpoint->folder_ = folder;
  const std::string config_path = folder + "/config.json";
  auto config_text = read_text_file(config_path, limits::kConfigBytesMax);
  if (!config_text) return config_text.error();
  auto config = parse_model_config(*config_text, config_path);
  if (!config) return config.error();
  checkpoint->config_ = std::move(*config);
  auto generation = load_generation_config(folder);
  if (!generation) return generation.error();
  checkpoint->generation_config_ = std::move(*generation);

  auto index = read_index(folder + "/" + kIndexName);
  if (!index && index.error().code != ErrorCode::kNotFound) return index.error();
  std::vector<std::string> names;
  if (index) {
    std::set<std::string> unique;
    for (const auto& [tensor, file] : *index) unique.insert(file);
    names.assign(unique.begin(), unique.end());
  } else {
    auto listed = list_safetensors(folder);
    if (!listed) return listed.error();
    names = std::move(*listed);
  }
  if (auto status = checkpoint->open_files(names); !status) return status.error();
  if (index)
    if (auto status = checkpoint->check_index(*index); !status) return status.error();
  if (auto status = check_tensors(*checkpoint); !status) return status.error();

  Sha256 hash;
  hash.add(*config_text);
  for (auto& file : checkpoint->files_) {
    hash.add(file.file->name());
    hash.add(std::exchange(file.header, {}));
  }
  checkpoint->hash_ = hash.hex();
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Status Checkpoint::open_files(const std::vector<std::string>& names) {
  for (const auto& name : names)
    if (auto status = add_file(name); !status) return status;
  return {};
}

Status Checkpoint::add_file(const std::string& name) {
  auto opened = WeightFile::open(folder_, name);
  if (!opened) return opened.error();
  File added{std::move(*opened), {}, 0};
  const WeightFile& file = *added.file;

  std::array<std::byte, 8> prefix{};
  const auto prefix_bytes = std::min<std::uint64_t>(prefix.size(), file.size());
  const auto begin = std::span(prefix).first(static_cast<std::size_t>(prefix_bytes));
  if (auto status = file.read(0, begin); !status) return status;
  const auto length = safetensors_header_length(begin, file.size(), file.path());
  if (!length) return length.error();
  added.header.resize(static_cast<std::size_t>(8 + *length));
  const auto bytes = std::as_writable_bytes(std::span(added.header));
  if (auto status = file.read(0, bytes); !status) return status;
  if (auto status = file.unchanged(); !status) return status;
  auto header = parse_safetensors_header(bytes, file.size(), file.path());
  if (!header) return header.error();
  added.data_offset = header->data_offset;
  files_.push_back(std::move(added));
  return add_tensors(static_cast<std::uint32_t>(files_.size() - 1), std::move(*header));
}

Status Checkpoint::add_tensors(std::uint32_t file, SafetensorsHeader header) {
  for (auto& [tensor, info] : header.tensors) {
    const auto [at, inserted] = directory_.try_emplace(tensor);
    if (!inserted)
      return corrupt("tensor " + tensor + " is in " + files_[at->second.file].file->path() +
                     " and in " + files_[file].file->path() + ", but should be in one file only");
    at->second.file = file;
    at->second.info = std::move(info);
  }
  return {};
}

Status Checkpoint::check_index(const std::map<std::string, std::string>& weight_map) const {
  for (const auto& [tensor, file] : weight_map) {
    const auto found = directory_.find(tensor);
    if (found == directory_.end() || files_[found->second.file].file->name() != file)
      return corrupt(folder_ + "/" + kIndexName + ": tensor " + tensor.substr(0, 256) +
                     " should be in " + file + ", but is " +
                     (found == directory_.end()
                          ? "in no file"
                          : "in " + files_[found->second.file].file->name()));
  }
  return {};
}

// --- Tensors ------------------------------------------------------------------------------------

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : directory_) names.push_back(name);
  return names;
}

Result<const Checkpoint::Entry*> Checkpoint::expect(std::string_view name,
                                                    std::span<const DType> allowed,
                                                    std::span<const std::int64_t> shape) const {
  const auto found = directory_.find(name);
  if (found == directory_.end())
    return corrupt(folder_ + " lacks the tensor " + std::string(name) + ", expected with shape " +
                   shape_text(shape));
  const Entry& entry = found->second;
  const std::string named = files_[entry.file].file->path() + ": tensor " + std::string(name);
  if (std::find(allowed.begin(), allowed.end(), entry.info.dtype) == allowed.end()) {
    std::string names;
    for (const DType dtype : allowed)
      names += (names.empty() ? "" : " or ") + std::string(to_string(dtype));
    return corrupt(named + " should have dtype " + names + ", but has " +
                   std::string(to_string(entry.info.dtype)));
  }
  if (!std::equal(shape.begin(), shape.end(), entry.info.shape.begin(), entry.info.shape.end()))
    return corrupt(named + " should have shape " + shape_text(shape) + ", but has " +
                   shape_text(entry.info.shape));
  return &entry;
}

Status Checkpoint::check_tensor(std::string_view name, std::span<const DType> allowed,
                                std::span<const std::int64_t> shape) const {
  const auto entry = expect(name, allowed, shape);
  return entry ? Status() : Status(entry.error());
}

StoredTensor Checkpoint::stored(std::string_view name, const Entry& entry) const {
  const File& file = files_[entry.file];
  return {name, &entry.info, file.file.get(), file.data_offset + entry.info.offset};
}

Result<StoredTensor> Checkpoint::tensor(std::string_view name, std::span<const DType> allowed,
                                        std::span<const std::int64_t> shape) const {
  const auto entry = expect(name, allowed, shape);
  if (!entry) return entry.error();
  (*entry)->reads.fetch_add(1, std::memory_order_relaxed);
  return stored(directory_.find(name)->first, **entry);
}

Result<StoredTensor> Checkpoint::find(std::string_view name) const {
  const auto found = directory_.find(name);
  if (found == directory_.end())
    return not_found(folder_ + " has no tensor " + std::string(name.substr(0, 256)));
  return stored(found->first, found->second);
}

Status Checkpoint::read(const StoredTensor& tensor, std::uint64_t from,
                        std::span<std::byte> out) const {
  if (auto status = trusted(); !status) return status;
  if (auto status = tensor.file->read(tensor.offset + from, out); !status)
    return failed(tensor, status.error());
  bytes_read_.fetch_add(out.size(), std::memory_order_relaxed);
  return {};
}

Status Checkpoint::confirm(const StoredTensor& tensor) const {
  const Status unchanged = tensor.file->unchanged();
  return unchanged ? unchanged : Status(failed(tensor, unchanged.error()));
}

Status Checkpoint::trusted() const {
  std::lock_guard lock(mutex_);
  return doubt_ ? Status(*doubt_) : Status();
}

Error Checkpoint::failed(const StoredTensor& tensor, const Error& error) const {
  // A bad block does not make it another file.
  const Status unchanged = tensor.file->unchanged();
  Error named{error.code, "tensor " + std::string(tensor.name) + " cannot be read: " +
                              (unchanged ? error : unchanged.error()).message};
  if (!unchanged && unchanged.error().code == ErrorCode::kCorrupt) {
    std::lock_guard lock(mutex_);
    if (!doubt_) doubt_ = named;
  }
  return named;
}

std::uint64_t Checkpoint::reads(std::string_view name) const {
  const auto found = directory_.find(name);
  return found == directory_.end() ? 0 : found->second.reads.load(std::memory_order_relaxed);
}

}  // namespace troupe
