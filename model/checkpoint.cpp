#include "model/checkpoint.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <span>

#include "model/file_error.h"
#include "model/gguf/gguf.h"
#include "model/gguf/gguf_spec.h"
#include "model/json_reader.h"
#include "model/model_path.h"
#include "model/spec/bind.h"
#include "model/spec/read_spec.h"
#include "model/tensor_reader.h"
#include "model/weight_file.h"
#include "model/weight_map.h"
#include "runtime/limits.h"
#include "runtime/sha256.h"

namespace troupe {
namespace {

/// Of a wavelength.
constexpr float kFactorMin = 1e-6f, kFactorMax = 1e6f;

/// SHA-256 over parts, each preceded by its length, so that no two lists of parts look alike.
class PartsHash {
 public:
  void add(std::string_view part) {
    const std::uint64_t size = part.size();
    hash_.add(std::as_bytes(std::span(&size, 1)));
    hash_.add(std::as_bytes(std::span(part)));
  }

  std::string hex() {
    std::string text;
    for (const std::byte byte : hash_.finish()) {
      text += "0123456789abcdef"[std::to_integer<int>(byte >> 4)];
      text += "0123456789abcdef"[std::to_integer<int>(byte & std::byte{15})];
    }
    return text;
  }

 private:
  Sha256 hash_;
};

}  // namespace

Checkpoint::Checkpoint(const std::string& folder, CheckpointUse use)
    : folder_(folder), use_(use), directory_(folder) {}
Checkpoint::~Checkpoint() = default;

Result<std::shared_ptr<const Checkpoint>> Checkpoint::open(const std::string& folder,
                                                           CheckpointUse use) {
  const auto gguf = find_gguf(folder);
  if (!gguf) return gguf.error();
  std::shared_ptr<Checkpoint> checkpoint(new Checkpoint(folder, use));
  const Status opened = *gguf ? checkpoint->open_gguf(**gguf) : checkpoint->open_folder();
  if (!opened) return opened.error();
  return std::shared_ptr<const Checkpoint>(std::move(checkpoint));
}

namespace {

/// What a configuration says, however it is written, without what programs write of themselves.
std::string said_by(const std::string& config, const std::string& path) {
  auto said = parse_json(config, path).value();
  for (const char* key :
       {"transformers_version", "_name_or_path", "torch_dtype", "dtype", "use_cache", "auto_map"})
    said.erase(key);
  return said.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace);
}

}  // namespace

Status Checkpoint::open_folder() {
  const std::string config_path = folder_ + "/config.json";
  auto config_text = read_config(folder_);
  if (!config_text) return config_text.error();
  auto told = parse_model_spec(*config_text, config_path);
  if (!told) return told.error();
  auto map = find_weight_files(folder_);
  if (!map) return map.error();
  left_out_ = std::move(map->beside);
  for (const auto& name : map->files)
    if (auto status = add_file(name, map->index); !status) return status;
  for (const auto& [tensor, file] : map->index)
    if (!has(tensor)) note_missing(tensor, file, map->files);
  return finish(std::move(*told), said_by(*config_text, config_path));
}

/// An error only if a weight needs it.
void Checkpoint::note_missing(const std::string& tensor, const std::string& file,
                              const std::vector<std::string>& files) {
  if (!std::binary_search(files.begin(), files.end(), file))
    return directory_.note_missing(
        tensor, file_error(folder_ + "/" + file,
                           "cannot be opened, where the index has tensor " + tensor.substr(0, 256),
                           ENOENT));
  directory_.note_missing(
      tensor, corrupt(folder_ + "/" + kWeightIndex + ": tensor " + tensor.substr(0, 256) +
                      " should be in " + file + ", but is not there"));
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

Status Checkpoint::read_rope_factors(RopeSpec& rope) {
  if (!has(kGgufRopeFactors)) return {};
  static constexpr DType kFloat[] = {DType::kF32};
  const StoredPart part = {
      PartKind::kCodes, kGgufRopeFactors, kFloat, {rope.dim / 2}, StoredAxis::kNone};
  if (const auto there = directory_.expect(part); !there) return there.error();
  directory_.note(part, false);
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
  for (const auto& [name, entry] : directory_.entries())
    if (!entry.used && !is_of_mtp(name, spec_)) left_out_.push_back(name);
  for (const auto& [name, why] : directory_.missing())
    if (!is_of_mtp(name, spec_)) left_out_.push_back(name);
  hash_ = make_hash(config);
  return {};
}

/// By what they say, not by what they are called: one file may have a name of its own here. The
/// tensors tell which of several copies the index means.
std::string Checkpoint::make_hash(std::string_view config) {
  std::vector<std::vector<std::string_view>> said(files_.size());
  for (const auto& [name, entry] : directory_.entries())
    if (entry.used) said[entry.file].push_back(name);
  for (std::size_t i = 0; i < files_.size(); ++i)
    if (!said[i].empty()) said[i].insert(said[i].begin(), files_[i].header);
  std::ranges::sort(said);
  PartsHash hash;
  hash.add(config);
  for (const auto& parts : said)
    for (const std::string_view part : parts) hash.add(part);
  for (File& file : files_) file.header = {};
  return hash.hex();
}

namespace {

Error without_tensors(const std::string& file) {
  const auto model = snapshot_model(file);
  return refused(file +
                 " holds the header only, as `troupe pull --for head` fetches it; a worker needs "
                 "the whole checkpoint" +
                 (model ? ": `troupe pull " + model->name + "@" + model->revision +
                              "`, and --model " + model->name + "@" + model->revision
                        : ""));
}

}  // namespace

Status Checkpoint::add_file(const std::string& name,
                            const std::map<std::string, std::string>& index) {
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
  if (header->alone && use_ == CheckpointUse::kTensors) return without_tensors(file.path());
  has_tensors_ = has_tensors_ && !header->alone;
  added.data_offset = header->data_offset;
  const std::uint32_t number = directory_.add_file(file.path());
  files_.push_back(std::move(added));
  for (auto& [tensor, info] : header->tensors) {
    const auto meant = index.find(tensor);
    if (meant != index.end() && meant->second != name) {  // another file's is the right one
      left_out_.push_back(tensor + " of " + name);
      continue;
    }
    if (auto status = directory_.add(number, tensor, std::move(info)); !status) return status;
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
