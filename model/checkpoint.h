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

#include "model/config.h"
#include "model/generation_config.h"
#include "runtime/result.h"

namespace troupe {

/// Number formats of the safetensors files.
enum class DType : std::uint8_t {
  kBool, kU8, kI8, kF8E4M3, kF8E5M2, kI16, kU16, kF16, kBf16, kI32, kU32, kF32, kI64, kU64, kF64,
};

std::size_t dtype_size(DType dtype);
std::string_view to_string(DType dtype);  ///< as in a safetensors header: "BF16"

struct TensorInfo {
  DType dtype = DType::kBf16;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  ///< from the start of the data section
  std::uint64_t bytes = 0;
};

class WeightFile;

/// A tensor of a checkpoint and where its bytes are, in row-major order; valid as long as the
/// checkpoint.
struct StoredTensor {
  std::string_view name;
  const TensorInfo* info = nullptr;
  const WeightFile* file = nullptr;
  std::uint64_t offset = 0;  ///< in the file
};

/// The formats that weights may have so far.
inline constexpr DType kWeightDTypes[] = {DType::kBf16, DType::kF32};

/// The header of one safetensors file.
struct SafetensorsHeader {
  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::uint64_t data_offset = 0;  ///< of the data section in the file
};

/// The JSON length that the first 8 bytes of a file of `file_size` bytes claim, if it can be true.
Result<std::uint64_t> safetensors_header_length(std::span<const std::byte> head,
                                                std::uint64_t file_size, const std::string& file);

/// Parses a header from the first bytes of a file of `file_size` bytes. `head` holds at least the 8
/// bytes of the length and the JSON. Checks names, dtypes, shapes against byte
/// counts, that the tensors neither overlap nor leave gaps, and that the file ends where they end.
Result<SafetensorsHeader> parse_safetensors_header(std::span<const std::byte> head,
                                                   std::uint64_t file_size,
                                                   const std::string& file);

/// A Hugging Face folder: config.json and *.safetensors with an index, single, or several without
/// one. The files stay open; nothing but headers is read until someone asks for a tensor. Safe to
/// use from several threads.
///
/// What is read must be of the files as they were opened. Once one of them turns out to be another
/// the checkpoint is doubted: nothing is read from it any more, however the files look later.
class Checkpoint {
 public:
  static Result<std::shared_ptr<const Checkpoint>> open(const std::string& folder);
  ~Checkpoint();
  Checkpoint(const Checkpoint&) = delete;
  Checkpoint& operator=(const Checkpoint&) = delete;

  const std::string& folder() const { return folder_; }
  const ModelConfig& config() const { return config_; }
  const GenerationConfig& generation_config() const { return generation_config_; }

  /// SHA-256 over config.json and the safetensors headers by file name, in hex: members with
  /// another one serve another model.
  const std::string& hash() const { return hash_; }

  bool has(std::string_view name) const { return directory_.contains(name); }
  std::vector<std::string> names() const;

  /// Where a tensor is. Errors when it is missing, when its dtype is none of `allowed` or its shape
  /// another one.
  Result<StoredTensor> tensor(std::string_view name, std::span<const DType> allowed,
                              std::span<const std::int64_t> shape) const;
  /// The same checks without handing anything out.
  Status check_tensor(std::string_view name, std::span<const DType> allowed,
                      std::span<const std::int64_t> shape) const;
  /// A tensor of any type and shape.
  Result<StoredTensor> find(std::string_view name) const;

  /// Fills `out` with a tensor's bytes from `from` on. What was read counts only once confirm() has
  /// succeeded after it.
  Status read(const StoredTensor& tensor, std::uint64_t from, std::span<std::byte> out) const;
  Status confirm(const StoredTensor& tensor) const;
  /// The error that cast doubt on it, if one has.
  Status trusted() const;
  /// Names the tensor in an error of its file. If the file is another, that is said instead.
  Error failed(const StoredTensor& tensor, const Error& error) const;

  /// How often tensor() was asked for one, for the proof that each is read once.
  std::uint64_t reads(std::string_view name) const;
  /// Bytes read so far, all tensors.
  std::uint64_t bytes_read() const { return bytes_read_.load(std::memory_order_relaxed); }

 private:
  struct File {
    std::unique_ptr<WeightFile> file;
    std::string header;  ///< with its length; only while opening
    std::uint64_t data_offset = 0;
  };
  struct Entry {
    std::uint32_t file = 0;
    TensorInfo info;
    mutable std::atomic<std::uint32_t> reads{0};
  };
  Checkpoint();
  Status open_files(const std::vector<std::string>& names);
  Status add_file(const std::string& name);
  Status add_tensors(std::uint32_t file, SafetensorsHeader header);
  Status check_index(const std::map<std::string, std::string>& weight_map) const;
  StoredTensor stored(std::string_view name, const Entry& entry) const;
  /// Its directory entry, if dtype and shape are as expected.
  Result<const Entry*> expect(std::string_view name, std::span<const DType> allowed,
                              std::span<const std::int64_t> shape) const;

  std::string folder_;
  std::string hash_;
  ModelConfig config_;
  GenerationConfig generation_config_;
  std::vector<File> files_;
  std::map<std::string, Entry, std::less<>> directory_;
  mutable std::atomic<std::uint64_t> bytes_read_{0};
  mutable std::mutex mutex_;
  mutable std::optional<Error> doubt_;  // guarded by mutex_
};

}  // namespace troupe
