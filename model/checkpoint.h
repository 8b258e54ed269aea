#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec/model_spec.h"
#include "model/tensor_directory.h"
#include "runtime/dtype.h"
#include "runtime/result.h"

namespace troupe {

class WeightFile;

/// A tensor of a checkpoint, or one expert's part of it, and where its bytes are, in row-major
/// order; valid as long as the checkpoint.
struct StoredTensor {
  std::string name;  ///< "NAME", or "NAME[7]" of the seventh expert of a tensor that has them all
  DType dtype = DType::kBf16;
  std::vector<std::int64_t> shape;  ///< without the experts' axis
  const WeightFile* file = nullptr;
  std::uint64_t offset = 0, bytes = 0;  ///< in the file
  StoredAxis split = StoredAxis::kNone;
  const BlockFormat* blocks = nullptr;  ///< as in TensorInfo
};

/// The header of one safetensors file.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::uint64_t data_offset = 0;  ///< of the data section in the file
  bool alone = false;             ///< the file ends with it, where its tensors should begin
};

/// The JSON length that the first 8 bytes of a file of `file_size` bytes claim, if it can be true.
Result<std::uint64_t> safetensors_header_length(std::span<const std::byte> head,
                                                std::uint64_t file_size, const std::string& file);

/// Parses a header from the first bytes of a file of `file_size` bytes. `head` holds at least the 8
/// bytes of the length and the JSON. Checks names, dtypes, shapes against byte
/// counts, that the tensors neither overlap nor leave gaps, and that the file ends where they end;
/// or where the header does, if it is alone.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   std::uint64_t file_size,
                                                   const std::string& file);

enum class CheckpointUse {
  kTensors,
  kHeaders,  ///< no tensor is asked for; a safetensors file may end with its header
};

/// A Hugging Face folder: config.json and *.safetensors (model/weight_map.h); or a GGUF file
/// (model/gguf/gguf.h). The files stay open; nothing but headers is read until someone asks for a
/// tensor. Safe to use from several threads.
///
/// What is read must be of the files as they were opened. Once one of them turns out to be another
/// the checkpoint is doubted: nothing is read from it any more, however the files look later. Then
/// it is opened afresh (model/renewed.h).
class Checkpoint {
 public:
  /// `folder` may also be a GGUF file, or a folder with one.
  static Result<std::shared_ptr<const Checkpoint>> open(
      const std::string& folder, CheckpointUse use = CheckpointUse::kTensors);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string& folder() const { return folder_; }
  const ModelSpec& spec() const { return spec_; }
  /// False: of some file the header is all there is.
  bool has_tensors() const { return has_tensors_; }

  /// SHA-256 over config.json, the safetensors headers and which tensors are taken from which, or
  /// over a GGUF file's header, in hex: members with another one serve another model. What the
  /// files are called is no part of it.
  const std::string& hash() const { return hash_; }
  /// Files and tensors that are there, and that no weight needs. MTP layers do not count.
  const std::vector<std::string>& left_out() const { return left_out_; }

  bool has(std::string_view name) const { return directory_.find(name) != nullptr; }
  std::vector<std::string> names() const;

  /// Any tensor, by the name of a StoredTensor. kNotFound when there is none.
  Result<StoredTensor> find(std::string_view name) const;
  /// The same, on its way into memory: it is counted.
  Result<StoredTensor> tensor(std::string_view name) const;

  /// Fills `out` with a tensor's bytes from `from` on. What was read counts only once confirm() has
  /// succeeded after it.
  Status read(const StoredTensor& tensor, std::uint64_t from, std::span<std::byte> out) const;
  Status confirm(const StoredTensor& tensor) const;
  /// The error that cast doubt on it, if one has.
  Status trusted() const;
  /// It is trusted, and each of its files is the one that was opened, in its place: kCorrupt else.
  Status unchanged() const;
  /// Names the tensor in an error of its file. If the file is another, that is said instead.
  Error failed(const StoredTensor& tensor, const Error& error) const;

  /// How often tensor() was asked for one or a part of it, for the proof that each is read once.
  std::uint64_t reads(std::string_view name) const;
  /// Bytes read so far, all tensors.
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct File {
    std::unique_ptr<WeightFile> file;
    std::string header;  ///< with its length; only while opening
    std::uint64_t data_offset = 0;
  };
  Checkpoint(const std::string& folder, CheckpointUse use);
  Status open_folder();
  Status open_gguf(const std::string& path);
  /// With the tensors of it that `index` does not have elsewhere.
  Status add_file(const std::string& name, const std::map<std::string, std::string>& index);
  void note_missing(const std::string& tensor, const std::string& file,
                    const std::vector<std::string>& files);
  Status read_rope_factors(RopeSpec& rope);
  /// The spec meets the tensors.
  Status finish(ModelSpec told, std::string_view config);
  std::string make_hash(std::string_view config);

  std::string folder_;
  CheckpointUse use_;
  bool has_tensors_ = true;
  std::string hash_;
  ModelSpec spec_;
  std::vector<std::string> left_out_;
  std::vector<File> files_;
  TensorDirectory directory_;
  mutable std::atomic<std::uint64_t> bytes_read_{0};
  mutable std::mutex mutex_;
  mutable std::optional<Error> doubt_;  // guarded by mutex_
};

}  // namespace troupe
