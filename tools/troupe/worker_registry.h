#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

namespace troupe::cli {

/// This process in STATE/workers, where `troupe stop` finds the workers of this machine that no
/// head knows: a file with its number, which it holds locked, so that another process of that
/// number is not mistaken for it. A folder that cannot be written does no harm.
class WorkerRegistration {
 public:
  explicit WorkerRegistration(const std::string& state_dir);
  ~WorkerRegistration();
  WorkerRegistration(const WorkerRegistration&) = delete;
  WorkerRegistration& operator=(const WorkerRegistration&) = delete;

 private:
  std::string path_;
  int lock_ = -1;
};

/// The workers of this machine that live. Takes away what others have left.
std::vector<pid_t> registered_workers(const std::string& state_dir);

}  // namespace troupe::cli
