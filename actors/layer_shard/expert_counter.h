#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "transport/message.h"

namespace troupe {

/// How many rows the gates of this node's shards sent to each routed expert, since the last time
/// somebody took the counts. Any thread.
class ExpertCounter {
 public:
  /// Layers are counted for experts 0 to `experts - 1` at least; higher ids widen their layer.
  explicit ExpertCounter(std::int32_t experts = 0);

  /// Counts one row for each id.
  void add(std::int32_t layer, std::span<const std::int32_t> expert_ids);
  /// What was counted since the last call; none if that is nothing.
  std::optional<ExpertCounts> take();

 private:
  const std::size_t experts_;
  std::mutex mutex_;
  std::vector<std::vector<std::uint32_t>> layers_;  // guarded by mutex_: by layer; empty: none
};

}  // namespace troupe
