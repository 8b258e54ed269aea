#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "model/spec/stored_parts.h"
#include "runtime/dtype.h"
#include "runtime/result.h"

namespace troupe {

struct BlockFormat;

struct TensorInfo {
  DType dtype = DType::kBf16;
  std::vector<std::int64_t> shape;
  std::uint64_t offset = 0;  ///< from the start of the data section
  std::uint64_t bytes = 0;
  const BlockFormat* blocks = nullptr;  ///< GGUF: that it is stored in; they are read as `dtype`
};

/// All tensors of a checkpoint by name: what the headers of its files say, and what its model's
/// spec says of them.
class TensorDirectory {
 public:
  struct Entry {
    std::uint32_t file = 0;
    TensorInfo info;
    StoredAxis split = StoredAxis::kNone;
    bool stacked = false;  ///< its first axis counts experts
    bool used = false;     ///< a weight of the spec is made from it
    mutable std::atomic<std::uint32_t> reads{0};
  };
  using Map = std::map<std::string, Entry, std::less<>>;

  explicit TensorDirectory(std::string folder) : folder_(std::move(folder)) {}

  /// A file's number.
  std::uint32_t add_file(std::string path);
  /// Fails if another file has the tensor too.
  Status add(std::uint32_t file, const std::string& name, TensorInfo info);

  /// Why there is no such tensor, for whoever expects it.
  void note_missing(const std::string& name, Error why) { missing_.emplace(name, std::move(why)); }

  const std::map<std::string, Error, std::less<>>& missing() const { return missing_; }

  const Map& entries() const { return entries_; }
  /// Null: there is none.
  const Entry* find(std::string_view name) const;
  /// What a weight's tensor must be: kCorrupt when it is missing, its dtype is none of the part's
  /// or its shape is another one.
  Result<const Entry*> expect(const StoredPart& part) const;
  /// Keeps what the spec says of a tensor that is there.
  void note(const StoredPart& part, bool stacked);
  /// "FOLDER/FILE: tensor NAME".
  std::string named(std::string_view name, const Entry& entry) const;

 private:
  std::string folder_;
  std::vector<std::string> paths_;
  Map entries_;
  std::map<std::string, Error, std::less<>> missing_;
};

}  // namespace troupe
