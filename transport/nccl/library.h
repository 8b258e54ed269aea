#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "runtime/result.h"
#include "transport/nccl/abi.h"

namespace troupe::nccl {

/// Where the libraries are looked for. Tests name their double for both.
struct Paths {
  std::string nccl = "libnccl.so.2";
  std::string cuda = "libcuda.so.1";
};

/// libnccl: a version that we can use, and all of its functions that we do.
class Library {
 public:
  /// kUnavailable with a sentence for people: it is missing, another major version, too old, or
  /// lacks a function.
  static Result<std::shared_ptr<const Library>> load(const std::string& path);

  /// As NCCL_VERSION_CODE: 22809 is 2.28.9.
  int version() const { return version_; }
  std::string version_text() const;

  /// `what` failed with this: "NCCL could not <what>: <its words>." kSuccess and kInProgress are no
  /// failure.
  Status check(Code code, const std::string& what) const;

  GetUniqueId get_unique_id = nullptr;
  CommInitRankConfig comm_init = nullptr;
  CommGetAsyncError comm_async_error = nullptr;
  CommAbort comm_abort = nullptr;
  GroupStart group_start = nullptr;
  GroupEnd group_end = nullptr;
  Send send = nullptr;
  Recv recv = nullptr;

 private:
  GetVersion get_version_ = nullptr;
  GetErrorString error_string_ = nullptr;
  int version_ = 0;
};

}  // namespace troupe::nccl
