#include "model/random/random_checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <mutex>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>
#include <vector>

#include "model/file_error.h"
#include "model/json_reader.h"
#include "model/random/new_file.h"
#include "model/random/random_numbers.h"
#include "model/spec/read_spec.h"
#include "runtime/limits.h"
#include "runtime/thread_pool.h"
#include "runtime/xxh3.h"

namespace troupe {
namespace {

constexpr std::uint64_t kFileBytesMax = 2ull << 30;
/// What threads take at a time, with a seed of its own.
constexpr std::uint64_t kPieceBytes = 4u << 20;

struct Tensor {
  std::string name;
  std::vector<std::int64_t> shape;
  RandomFill fill;
  std::uint64_t bytes = 0;
  std::uint64_t offset = 0;  ///< in its file
  std::size_t file = 0;
};

/// Every tensor that the model has, once, in the order of the forward pass.
class Inventory {
 public:
  static Result<std::vector<Tensor>> of(const ModelSpec& spec) {
    Inventory all;
    all.add_each(spec.first);
    for (const LayerSpec& layer : spec.layers) {
      all.add_each(layer.weights);
      for (std::int32_t e = 0; layer.has_experts() && e < layer.experts.gate.experts; ++e)
        all.add_each(layer.expert, e);
    }
    all.add_each(spec.last);
    if (!all.status_) return all.status_.error();
    return std::move(all.tensors_);
  }

 private:
  void add_each(const std::vector<WeightSpec>& weights, std::int32_t expert = 0) {
    for (const WeightSpec& w : weights) {
      if (w.group > 0 && w.k % w.group != 0 && status_)
        status_ = invalid_argument("The weight " + name_of(w, expert) + " has " +
                                   std::to_string(w.k) + " columns, which groups of " +
                                   std::to_string(w.group) +
                                   " do not divide; choose other sizes or another format.");
      for (const StoredPart& part : stored_parts(w, expert)) add(w, part);
    }
  }

  /// Weights may share a tensor: a tied head, stacked experts.
  void add(const WeightSpec& w, const StoredPart& part) {
    if (!names_.insert(part.name).second) return;
    Tensor t{part.name, part.shape, random_fill(w, part)};
    t.bytes = dtype_size(t.fill.dtype);
    for (const auto dimension : t.shape) t.bytes *= static_cast<std::uint64_t>(dimension);
    tensors_.push_back(std::move(t));
  }

  std::vector<Tensor> tensors_;
  std::set<std::string> names_;
  Status status_;
};

/// Says which tensor goes to which file; the number of files.
std::size_t share_out(std::vector<Tensor>& tensors) {
  std::size_t file = 0;
  std::uint64_t size = 0;
  for (Tensor& t : tensors) {
    const std::uint64_t bytes = t.bytes + t.name.size() + 192;  // with its line of the header
    if (size > 0 && size + bytes > kFileBytesMax) ++file, size = 0;
    size += bytes;
    t.file = file;
  }
  return tensors.empty() ? 0 : file + 1;
}

std::string file_name(std::size_t file, std::size_t files) {
  if (files == 1) return "model.safetensors";
  char name[64];
  std::snprintf(name, sizeof name, "model-%05zu-of-%05zu.safetensors", file + 1, files);
  return name;
}

/// The header of one file with its length before it; settles the tensors' offsets.
std::string make_header(std::vector<Tensor>& tensors, std::size_t file) {
  nlohmann::json header = {{"__metadata__", {{"format", "pt"}}}};
  std::uint64_t end = 0;
  for (Tensor& t : tensors) {
    if (t.file != file) continue;
    t.offset = std::exchange(end, end + t.bytes);
    header[t.name] = {{"dtype", to_string(t.fill.dtype)},
                      {"shape", t.shape},
                      {"data_offsets", {t.offset, end}}};
  }
  std::string text = header.dump();
  text.resize((text.size() + 7) / 8 * 8, ' ');
  std::string bytes(8, '\0');
  for (std::size_t i = 0; i < 8; ++i) bytes[i] = static_cast<char>(text.size() >> (8 * i) & 0xff);
  bytes += text;
  for (Tensor& t : tensors)
    if (t.file == file) t.offset += bytes.size();
  return bytes;
}

class Writer {
 public:
  Writer(const RandomCheckpointOptions& options, std::vector<Tensor> tensors, std::string config)
      : options_(options), tensors_(std::move(tensors)), config_(std::move(config)) {}

  Result<RandomCheckpoint> run(
      const std::function<void(std::uint64_t, std::uint64_t)>& on_progress) {
    const std::size_t count = share_out(tensors_);
    RandomCheckpoint made{count, tensors_.size(), 0};
    for (const Tensor& t : tensors_) made.bytes += t.bytes;
    for (std::size_t i = 0; i < count; ++i)
      if (auto status = begin_file(i, count); !status) return status.error();
    if (auto status = write_tensors(made.bytes, on_progress); !status) return status.error();
    if (count > 1)
      if (auto status = add_text("model.safetensors.index.json", index(count, made.bytes)); !status)
        return status.error();
    if (auto status = add_text("config.json", config_); !status) return status.error();
    for (NewFile& file : files_) file.keep();
    return made;
  }

 private:
  Status add_text(const std::string& name, const std::string& text) {
    auto file = NewFile::create(options_.folder + "/" + name, text.size());
    if (!file) return file.error();
    if (auto status = file->write(std::as_bytes(std::span(text)), 0); !status) return status;
    files_.push_back(std::move(*file));
    return {};
  }

  Status begin_file(std::size_t file, std::size_t files) {
    const std::string header = make_header(tensors_, file);
    std::uint64_t size = header.size();
    for (const Tensor& t : tensors_) size += t.file == file ? t.bytes : 0;
    auto made = NewFile::create(options_.folder + "/" + file_name(file, files), size);
    if (!made) return made.error();
    if (auto status = made->write(std::as_bytes(std::span(header)), 0); !status) return status;
    files_.push_back(std::move(*made));
    return {};
  }

  std::string index(std::size_t files, std::uint64_t bytes) const {
    nlohmann::json places = nlohmann::json::object();
    for (const Tensor& t : tensors_) places[t.name] = file_name(t.file, files);
    return nlohmann::json{{"metadata", {{"total_size", bytes}}}, {"weight_map", places}}.dump(2) +
           "\n";
  }

  Status write_tensors(std::uint64_t total,
                       const std::function<void(std::uint64_t, std::uint64_t)>& on_progress) {
    std::vector<std::pair<const Tensor*, std::uint64_t>> pieces;
    for (const Tensor& t : tensors_)
      for (std::uint64_t from = 0; from < t.bytes; from += kPieceBytes)
        pieces.emplace_back(&t, from);
    ThreadPool pool(options_.threads);
    std::vector<std::vector<std::byte>> buffers(static_cast<std::size_t>(pool.threads()));
    std::mutex mutex;
    std::uint64_t done = 0;
    Status status;
    pool.parallel_for(pieces.size(), [&](int thread, std::size_t i) {
      {
        const std::lock_guard lock(mutex);
        if (!status) return;
      }
      const auto [tensor, from] = pieces[i];
      auto& buffer = buffers[static_cast<std::size_t>(thread)];
      buffer.resize(std::min(kPieceBytes, tensor->bytes - from));
      const std::uint64_t seed = xxh3_64(tensor->name.data(), tensor->name.size(), options_.seed);
      fill_random(tensor->fill, xxh3_64(&from, sizeof from, seed), buffer);
      const Status written = files_[tensor->file].write(buffer, tensor->offset + from);
      const std::lock_guard lock(mutex);
      if (!written && status) status = written;
      done += buffer.size();
      if (thread == 0 && on_progress) on_progress(done, total);
    });
    if (status && on_progress) on_progress(total, total);
    return status;
  }

  const RandomCheckpointOptions& options_;
  std::vector<Tensor> tensors_;
  std::string config_;
  std::vector<NewFile> files_;
};

Status prepare_folder(const std::string& folder) {
  std::error_code error;
  std::filesystem::create_directories(folder, error);
  if (error) return file_error(folder, "cannot be made", error.value());
  const bool empty = std::filesystem::is_empty(folder, error);
  if (error) return file_error(folder, "cannot be read", error.value());
  if (!empty)
    return invalid_argument("The folder " + folder +
                            " holds something already; name one that is empty or not there.");
  return {};
}

}  // namespace

Result<RandomCheckpoint> write_random_checkpoint(
    const RandomCheckpointOptions& options,
    const std::function<void(std::uint64_t, std::uint64_t)>& on_progress) {
  auto config = read_text_file(options.config_file, limits::kConfigBytesMax);
  if (!config) return config.error();
  if (options.format) {
    config = config_in_format(*config, options.config_file, *options.format);
    if (!config) return config.error();
  }
  const auto spec = parse_model_spec(*config, options.config_file);
  if (!spec) return spec.error();
  auto tensors = Inventory::of(*spec);
  if (!tensors) return tensors.error();
  if (auto status = prepare_folder(options.folder); !status) return status.error();
  return Writer(options, std::move(*tensors), std::move(*config)).run(on_progress);
}

}  // namespace troupe
