#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/ids.h"

namespace troupe::cli {

/// This process in STATE/workers, where `troupe stop` finds the workers of this machine that no
/// head knows, and `troupe drain --here` which nodes they are: a file with the process's number as
/// its name, which it holds locked, so that another process of that number is not mistaken for it,
/// and its node's name. The file is touched while the worker takes its turns. A folder that cannot
/// be written does no harm.
class WorkerRegistration {
 public:
  explicit WorkerRegistration(const std::string& state_dir);
  ~WorkerRegistration();
  /// Which node it is (NodeId{}: none at present), and how many turns it has taken.
  void note(NodeId node, std::uint64_t turns);
  WorkerRegistration(const WorkerRegistration&) = delete;
  WorkerRegistration& operator=(const WorkerRegistration&) = delete;

 private:
  std::string path_;
  int lock_ = -1;
  NodeId node_;
  std::uint64_t turns_ = 0;
};

struct RegisteredWorker {
  pid_t pid = 0;
  std::string node;       ///< its name; empty: it is no member at present
  std::int64_t beat = 0;  ///< changes each second in which it takes turns
};

/// The workers of this machine that live. Takes away what others have left.
std::vector<RegisteredWorker> registered_workers(const std::string& state_dir);

}  // namespace troupe::cli
