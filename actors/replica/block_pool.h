#pragma once

#include <cstdint>
#include <vector>

namespace troupe {

/// The numbers of the free KV blocks of a replica. Every shard's pool has the same blocks, so one
/// number stands for one block of each.
class BlockPool {
 public:
  explicit BlockPool(std::int32_t blocks);

  std::int32_t total() const { return total_; }
  std::int32_t free() const { return static_cast<std::int32_t>(free_.size()); }
  std::int32_t used() const { return total() - free(); }
  const std::vector<std::int32_t>& free_blocks() const { return free_; }

  /// Appends `count` blocks to `table`; there must be as many free ones.
  void take(std::int32_t count, std::vector<std::int32_t>& table);
  /// Gives all of them back and clears the table.
  void give_back(std::vector<std::int32_t>& table);

 private:
  std::int32_t total_;
  std::vector<std::int32_t> free_;  ///< used from the back
};

}  // namespace troupe
