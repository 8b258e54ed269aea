#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/standby_messages.h"

namespace troupe {

/// What a standby knows of the head that it follows, beside requests and the checkpoint. It is kept
/// on its disk: whether it may take over is a promise that outlives its process.
struct FollowState {
  std::string head_address;  ///< "host:port"
  std::string cluster_id;    ///< empty: it has not found the head yet
  Incarnation head;          ///< the newest life of it
  Incarnation term;          ///< that it asked for last; 0: none
  std::uint64_t standby = 0;
  std::uint64_t succession = 0;  ///< the newest number
  std::uint32_t next_node = 1;
  bool complete = false;  ///< it may take over
  std::vector<WorkerLife> members;
};

}  // namespace troupe
