#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "runtime/ids.h"

namespace troupe::cli {

/// This process in STATE/workers, where `troupe stop` finds the workers of this machine that no
/// head knows, and `troupe drain --here` which nodes they are: a file with the process's number as
/// its name, which it holds locked, so that another process of that number is not mistaken for it,
/// and its node's name. A folder that cannot be written does no harm.
class WorkerRegistration {
 public:
  explicit WorkerRegistration(const std::string& state_dir);
  ~WorkerRegistration();
  /// Which node it is; NodeId{}: none at present.
  void note(NodeId node);
  WorkerRegistration(const WorkerRegistration&) = delete;
  WorkerRegistration& operator=(const WorkerRegistration&) = delete;

 private:
  std::string path_;
  int lock_ = -1;
  NodeId node_;
};

/// The workers of this machine that live. Takes away what others have left.
std::vector<pid_t> registered_workers(const std::string& state_dir);
/// The nodes that they are, as far as they are members.
std::vector<std::string> registered_nodes(const std::string& state_dir);

}  // namespace troupe::cli
