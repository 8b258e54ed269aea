#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/ids.h"

namespace troupe {

/// What each id contributes to decoded text, in one block of memory.
class TokenTable {
 public:
  /// Ids are in [0, size).
  void resize(std::size_t size) { entries_.resize(size); }
  std::size_t size() const { return entries_.size(); }

  bool has(TokenId id) const { return in_range(id) && entry(id).present; }
  bool is_special(TokenId id) const { return in_range(id) && entry(id).special; }
  std::size_t longest() const {
    std::size_t bytes = 0;
    for (const Entry& entry : entries_) bytes = std::max<std::size_t>(bytes, entry.length);
    return bytes;
  }
  std::string_view bytes(TokenId id) const {
    if (!has(id)) return {};
    return std::string_view(blob_).substr(entry(id).offset, entry(id).length);
  }

  /// The id must be in range and free.
  void set(TokenId id, std::string_view bytes) {
    entries_[static_cast<std::size_t>(id)] = {static_cast<std::uint32_t>(blob_.size()),
                                              static_cast<std::uint32_t>(bytes.size()), true,
                                              false};
    blob_ += bytes;
  }
  void mark_special(TokenId id) { entries_[static_cast<std::size_t>(id)].special = true; }

 private:
  struct Entry {
    std::uint32_t offset = 0;
    std::uint32_t length = 0;
    bool present = false;
    bool special = false;
  };

  bool in_range(TokenId id) const { return id >= 0 && static_cast<std::size_t>(id) < size(); }
  const Entry& entry(TokenId id) const { return entries_[static_cast<std::size_t>(id)]; }

  std::vector<Entry> entries_;
  std::string blob_;
};

}  // namespace troupe
