#include "model/checkpoint.h"

#include <dirent.h>
#include <openssl/evp.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <set>

#include "model/file_error.h"
#include "model/gguf/gguf.h"
#include "model/gguf/gguf_spec.h"
#include "model/json_reader.h"
#include "model/spec/bind.h"
#include "model/spec/read_spec.h"
#include "model/tensor_reader.h"
#include "model/weight_file.h"
#include "runtime/limits.h"

namespace troupe {
namespace {

constexpr std::string_view kSuffix = ".safetensors";
/// Of a wavelength.
constexpr float kFactorMin = 1e-6f, kFactorMax = 1e6f;
constexpr const char* kIndexName = "model.safetensors.index.json";

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
      return corrupt(
          path + ": tensor " + tensor.substr(0, 256) +
          " should be in a *.safetensors file of the same folder, but is in " +
          file.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace).substr(0, 256));
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

Checkpoint::Checkpoint(const std::string& folder) : folder_(folder), directory_(folder) {}
Checkpoint::~Checkpoint() = default;

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& folder) {
  const auto gguf = find_gguf(folder);
  if (!gguf) return gguf.error();
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(folder));
  const Status opened = *gguf ? checkpoint->open_gguf(**gguf) : checkpoint->open_folder();
  if (!opened) return opened.error();
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

Status Checkpoint::open_folder() {
  const std::string config_path = folder_ + "/config.json";
  auto config_text = read_text_file(config_path, limits::kConfigBytesMax);
  if (!config_text) return config_text.error();
  auto told = parse_model_spec(*config_text, config_path);
  if (!told) return told.error();
  auto generation = load_generation_config(folder_);
  if (!generation) return generation.error();
  generation_config_ = std::move(*generation);

  auto index = read_index(folder_ + "/" + kIndexName);
  if (!index && index.error().code != ErrorCode::kNotFound) return index.error();
  std::vector<std::string> names;
  if (index) {
    std::set<std::string> unique;
    for (const auto& [tensor, file] : *index) unique.insert(file);
    names.assign(unique.begin(), unique.end());
  } else {
    auto listed = list_safetensors(folder_);
    if (!listed) return listed.error();
    names = std::move(*listed);
  }
  if (auto status = open_files(names); !status) return status;
  if (index)
    if (auto status = check_index(*index); !status) return status;
  return finish(std::move(*told), *config_text);
}

Status Checkpoint::open_gguf(const std::string& path) {
  auto opened = troupe::open_gguf(path);
  if (!opened) return opened.error();
  auto told = gguf_spec(opened->header, opened->file->path());
  if (!told) return told.error();
  const std::uint32_t number = directory_.add_file(opened->file->path());
  files_.push_back({std::move(opened->file), std::move(opened->head), opened->header.data_offset});
  for (auto& [tensor, info] : opened->header.tensors)
    if (auto status = directory_.add(number, tensor, std::move(info)); !status) return status;
  if (auto status = read_rope_factors(told->rope); !status) return status;
  const auto factors = std::as_bytes(std::span(told->rope.factors));
  const std::string config(reinterpret_cast<const char*>(factors.data()), factors.size());
  return finish(std::move(*told), config);
}

Status Checkpoint::read_rope_factors(RopeSpec& rope) const {
  if (!has(kGgufRopeFactors)) return {};
  static constexpr DType kFloat[] = {DType::kF32};
  const StoredPart part = {
      PartKind::kCodes, kGgufRopeFactors, kFloat, {rope.dim / 2}, StoredAxis::kNone};
  if (const auto there = directory_.expect(part); !there) return there.error();
  auto in = TensorReader::open(*this, kGgufRopeFactors, TensorReader::Check::kScales);
  if (!in) return in.error();
  rope.factors.resize(static_cast<std::size_t>(rope.dim / 2));
  if (auto status = in->read(std::as_writable_bytes(std::span(rope.factors))); !status)
    return status;
  for (const float factor : rope.factors)
    if (factor < kFactorMin || factor > kFactorMax)
      return in->wrong("a factor that is not from 1e-6 to 1e6", 0, 0);
  return {};
}

Status Checkpoint::finish(ModelSpec told, std::string_view config) {
  auto spec = bind_spec(std::move(told), directory_);
  if (!spec) return spec.error();
  spec_ = std::move(*spec);
  Sha256 hash;
  hash.add(config);
  for (auto& file : files_) {
    hash.add(file.file->name());
    hash.add(std::exchange(file.header, {}));
  }
  hash_ = hash.hex();
  return {};
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
  const std::uint32_t number = directory_.add_file(file.path());
  files_.push_back(std::move(added));
  for (auto& [tensor, info] : header->tensors)
    if (auto status = directory_.add(number, tensor, std::move(info)); !status) return status;
  return {};
}

Status Checkpoint::check_index(const std::map<std::string, std::string>& weight_map) const {
  for (const auto& [tensor, file] : weight_map) {
    const auto* found = directory_.find(tensor);
    if (!found || files_[found->file].file->name() != file)
      return corrupt(folder_ + "/" + kIndexName + ": tensor " + tensor.substr(0, 256) +
                     " should be in " + file + ", but is " +
                     (found ? "in " + files_[found->file].file->name() : "in no file"));
  }
  return {};
}

// --- Tensors ------------------------------------------------------------------------------------

namespace {

/// "NAME[7]": the name and the number.
struct PartName {
  std::string_view tensor;
  std::int64_t expert = 0;
};
std::optional<PartName> part_name(std::string_view name) {
  const auto bracket = name.rfind('[');
  if (bracket == name.npos || !name.ends_with(']')) return std::nullopt;
  const std::string_view digits = name.substr(bracket + 1, name.size() - bracket - 2);
  PartName part{name.substr(0, bracket)};
  const auto [end, error] =
      std::from_chars(digits.data(), digits.data() + digits.size(), part.expert);
  if (error != std::errc() || end != digits.data() + digits.size()) return std::nullopt;
  return part;
}

}  // namespace

std::vector<std::string> Checkpoint::names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : directory_.entries()) names.push_back(name);
  return names;
}

Result<StoredTensor> Checkpoint::find(std::string_view name) const {
  const auto* entry = directory_.find(name);
  std::optional<PartName> part;
  if (!entry && (part = part_name(name))) entry = directory_.find(part->tensor);
  const bool there =
      entry &&
      (!part || (entry->stacked && part->expert >= 0 && part->expert < entry->info.shape.front()));
  if (!there) return not_found(folder_ + " has no tensor " + std::string(name.substr(0, 256)));
  const File& file = files_[entry->file];
  const TensorInfo& info = entry->info;
  StoredTensor found{
      std::string(name), info.dtype,   info.shape, file.file.get(), file.data_offset + info.offset,
      info.bytes,        entry->split, info.blocks};
  if (part) {
    found.bytes /= static_cast<std::uint64_t>(info.shape.front());
    found.offset += static_cast<std::uint64_t>(part->expert) * found.bytes;
    found.shape.erase(found.shape.begin());
  }
  return found;
}

Result<StoredTensor> Checkpoint::tensor(std::string_view name) const {
  auto found = find(name);
  if (!found) return found;
  const auto* entry = directory_.find(name);
  if (!entry) entry = directory_.find(part_name(name)->tensor);
  entry->reads.fetch_add(1, std::memory_order_relaxed);
  return found;
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

Status Checkpoint::unchanged() const {
  if (auto status = trusted(); !status) return status;
  for (const File& file : files_)
    if (auto status = file.file->unchanged(); !status) return status;
  return {};
}

Error Checkpoint::failed(const StoredTensor& tensor, const Error& error) const {
  // A bad block does not make it another file.
  const Status unchanged = tensor.file->unchanged();
  Error named{error.code, "tensor " + tensor.name + " cannot be read: " +
                              (unchanged ? error : unchanged.error()).message};
  if (!unchanged && unchanged.error().code == ErrorCode::kCorrupt) {
    std::lock_guard lock(mutex_);
    if (!doubt_) doubt_ = named;
  }
  return named;
}

std::uint64_t Checkpoint::reads(std::string_view name) const {
  const auto* found = directory_.find(name);
  return found ? found->reads.load(std::memory_order_relaxed) : 0;
}

}  // namespace troupe
