#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/tensor_directory.h"
#include "model/weight_file.h"
#include "runtime/result.h"

namespace troupe {

/// Whole numbers are int64, of floats there is but double; flags in a list are numbers.
using GgufValue = std::variant<bool, std::int64_t, double, std::string, std::vector<std::int64_t>,
                               std::vector<double>, std::vector<std::string>>;

/// What stands before the tensors of a GGUF file (version 2 or 3, little-endian).
struct GgufHeader {
  std::map<std::string, GgufValue, std::less<>> metadata;
  /// By the file's own names, shapes the other way round than in the file: rows first.
  std::map<std::string, TensorInfo, std::less<>> tensors;
  std::uint64_t data_offset = 0;  ///< where tensors' offsets count from

  /// Null: the key is absent, or its value of another type.
  template <class T>
  const T* get(std::string_view key) const {
    const auto found = metadata.find(key);
    return found == metadata.end() ? nullptr : std::get_if<T>(&found->second);
  }
};

/// Parses the beginning of a file of `file_size` bytes, of which `head` holds all that come before
/// the tensors. Checks every length, that types are supported, and that tensors are aligned, lie
/// within the file and do not overlap.
Result<GgufHeader> parse_gguf(std::span<const std::byte> head, std::uint64_t file_size,
                              const std::string& file);

/// The GGUF file that `model` means: itself, or the only one of a folder without config.json. None
/// if it is something else. kNotFound if nothing is there.
Result<std::optional<std::string>> find_gguf(const std::string& model);

struct GgufFile {
  std::unique_ptr<WeightFile> file;
  std::string head;  ///< the bytes before the tensors
  GgufHeader header;
};
Result<GgufFile> open_gguf(const std::string& path);

}  // namespace troupe
