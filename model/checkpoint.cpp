#include "model/checkpoint.h"

#include <dirent.h>
#include <fcntl.h>
#include <openssl/evp.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <set>

#include "model/json_reader.h"
#include "model/tensor_list.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
constexpr const char* kIndexName = "model.safetensors.index.json";

Error system_error(const std::string& path, const char* what) {
  const int error = errno;
  std::string message = path + " " + what + ": " + std::strerror(error);
  return error == ENOENT ? not_found(std::move(message)) : unavailable(std::move(message));
}

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
  if (!dir) return system_error(folder, "cannot be listed");
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

struct Checkpoint::File {
  std::string path;
  std::string name;
  int fd = -1;
  std::uint64_t size = 0;
  struct stat opened {};
  std::byte* map = nullptr;
  SafetensorsHeader header;

  ~File() {
    if (map) ::munmap(map, size);
    if (fd >= 0) ::close(fd);
  }

  /// The bytes may be read: it is still the file that was opened, and reaches as far as `end`. The
  /// error goes on after a name.
  Status still_holds(std::uint64_t end) const {
    struct stat st {};
    if (::fstat(fd, &st) != 0) return system_error("its file", "cannot be examined");
    if (static_cast<std::uint64_t>(st.st_size) < end)
      return corrupt("its file has shrunk to " + std::to_string(st.st_size) +
                     " bytes since it was opened; restore it");
    if (::stat(path.c_str(), &st) != 0)
      return system_error("its file", "is not there any more; restore it");
    const bool same = st.st_ino == opened.st_ino && st.st_dev == opened.st_dev &&
                      st.st_mtim.tv_sec == opened.st_mtim.tv_sec &&
                      st.st_mtim.tv_nsec == opened.st_mtim.tv_nsec;
    if (!same) return corrupt("its file has changed since it was opened; restore it");
    return {};
  }

  std::string_view header_text() const {
    return {reinterpret_cast<const char*>(map), header.data_offset};
  }
};

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
  for (const auto& file : checkpoint->files_) {
    hash.add(file->name);
    hash.add(file->header_text());
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
  auto file = std::make_unique<File>();
  file->name = name;
  file->path = folder_ + "/" + name;
  // O_NONBLOCK, so that a FIFO of that name does not hold us up.
  file->fd = ::open(file->path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (file->fd < 0) return system_error(file->path, "cannot be opened");
  struct stat st {};
  if (::fstat(file->fd, &st) != 0) return system_error(file->path, "cannot be examined");
  if (!S_ISREG(st.st_mode)) return corrupt(file->path + " should be a regular file");
  file->size = static_cast<std::uint64_t>(st.st_size);
  file->opened = st;

  std::array<std::byte, 8> prefix{};
  const ssize_t got = ::pread(file->fd, prefix.data(), prefix.size(), 0);
  if (got < 0) return system_error(file->path, "cannot be read");
  const auto length = safetensors_header_length(
      std::span<const std::byte>(prefix).first(static_cast<std::size_t>(got)), file->size,
      file->path);
  if (!length) return length.error();

  void* map = ::mmap(nullptr, file->size, PROT_READ, MAP_PRIVATE, file->fd, 0);
  if (map == MAP_FAILED) return system_error(file->path, "cannot be mapped");
  file->map = static_cast<std::byte*>(map);
  auto header = parse_safetensors_header({file->map, static_cast<std::size_t>(8 + *length)},
                                         file->size, file->path);
  if (!header) return header.error();
  file->header = std::move(*header);

  const auto index = static_cast<std::uint32_t>(files_.size());
  for (auto& [tensor, info] : file->header.tensors) {
    const auto [at, inserted] = directory_.try_emplace(tensor);
    if (!inserted)
      return corrupt("tensor " + tensor + " is in " + files_[at->second.file]->path + " and in " +
                     file->path + ", but should be in one file only");
    at->second.file = index;
    at->second.info = std::move(info);
  }
  file->header.tensors.clear();
  files_.push_back(std::move(file));
  return {};
}

Status Checkpoint::check_index(const std::map<std::string, std::string>& weight_map) const {
  for (const auto& [tensor, file] : weight_map) {
    const auto found = directory_.find(tensor);
    if (found == directory_.end() || files_[found->second.file]->name != file)
      return corrupt(folder_ + "/" + kIndexName + ": tensor " + tensor.substr(0, 256) +
                     " should be in " + file + ", but is " +
                     (found == directory_.end() ? "in no file"
                                                : "in " + files_[found->second.file]->name));
  }
  return {};
}

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
  const std::string named = files_[entry.file]->path + ": tensor " + std::string(name);
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

Result<TensorView> Checkpoint::tensor(std::string_view name, std::span<const DType> allowed,
                                      std::span<const std::int64_t> shape) const {
  const auto entry = expect(name, allowed, shape);
  if (!entry) return entry.error();
  const TensorInfo& info = (*entry)->info;
  const File& file = *files_[(*entry)->file];
  const std::uint64_t begin = file.header.data_offset + info.offset;
  if (auto status = file.still_holds(begin + info.bytes); !status)
    return Error{status.error().code, file.path + ": tensor " + std::string(name) +
                                          " cannot be read: " + status.error().message};
  (*entry)->reads.fetch_add(1, std::memory_order_relaxed);
  bytes_read_.fetch_add(info.bytes, std::memory_order_relaxed);
  return TensorView{info.dtype, {file.map + begin, static_cast<std::size_t>(info.bytes)}};
}

void Checkpoint::release(std::string_view name) const {
  const auto found = directory_.find(name);
  if (found == directory_.end()) return;
  const File& file = *files_[found->second.file];
  const std::uint64_t page = static_cast<std::uint64_t>(::sysconf(_SC_PAGESIZE));
  const std::uint64_t begin = file.header.data_offset + found->second.info.offset;
  const std::uint64_t end = begin + found->second.info.bytes;
  const std::uint64_t first = (begin + page - 1) / page * page, last = end / page * page;
  if (first < last) ::madvise(file.map + first, last - first, MADV_DONTNEED);
}

std::uint64_t Checkpoint::reads(std::string_view name) const {
  const auto found = directory_.find(name);
  return found == directory_.end() ? 0 : found->second.reads.load(std::memory_order_relaxed);
}

}  // namespace troupe
