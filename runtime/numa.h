#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/result.h"

namespace troupe {

/// A part of this machine: some processors and the memory that they reach fastest. Mostly a socket.
struct NumaNode {
  int number = 0;                  ///< as the system counts them
  std::vector<int> processors;     ///< those that this process may use, rising
  std::uint64_t memory_bytes = 0;  ///< 0: the system does not say
};

/// Nodes with processors that this process may use, by rising number. A machine whose system tells
/// of none has one, 0, with all of them. `folder`: where the system tells of them.
std::vector<NumaNode> numa_nodes(const std::string& folder = "/sys/devices/system/node");

/// The calling thread, and those that it starts, run on these processors only; none: on any.
Status run_on(const std::vector<int>& processors);

inline constexpr int kAnyNumaNode = -1;

/// While one lives, large buffers that this thread takes for weights (Buffer::in_huge_pages) lie in
/// that node's memory, as long as it has some. Scopes may be nested.
class NumaScope {
 public:
  explicit NumaScope(int node);
  ~NumaScope();
  NumaScope(const NumaScope&) = delete;
  NumaScope& operator=(const NumaScope&) = delete;

  /// Of the calling thread.
  static int current();

 private:
  const int before_;
};

/// What these whole pages take when they are first touched comes from that node, as long as it has
/// memory. False: the system does not do that.
bool place_pages(void* begin, std::size_t bytes, int node);

}  // namespace troupe
