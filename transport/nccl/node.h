#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "transport/nccl/device.h"
#include "transport/nccl/library.h"
#include "transport/nccl/watchdog.h"

namespace troupe::nccl {

/// What one device exchanges with.
struct Carrier {
  std::shared_ptr<const Library> library;
  std::shared_ptr<Device> device;
  Watchdog* watchdog = nullptr;  ///< outlives whoever exchanges
};

struct NodeOptions {
  Paths paths = {};
  std::vector<int> gpus;  ///< of each device of this worker, the driver's number
  /// As Watchdog::Options.
  std::function<void(const std::string&)> on_stuck;
};

/// NCCL as a worker has it: the libraries, its devices, and the watchdog over all communicators.
class Node {
 public:
  /// kUnavailable with a sentence for people: a library is missing or wrong, a GPU cannot be used.
  static Result<std::unique_ptr<Node>> open(NodeOptions options);

  /// Ranks use it together only if all have the same.
  std::uint32_t version() const { return static_cast<std::uint32_t>(library_->version()); }
  std::string describe() const { return "NCCL " + library_->version_text(); }
  Carrier carrier(std::uint32_t device) { return {library_, devices_.at(device), &watchdog_}; }

 private:
  Node(std::shared_ptr<const Library> library, std::vector<std::shared_ptr<Device>> devices,
       NodeOptions options);

  const std::shared_ptr<const Library> library_;
  const std::vector<std::shared_ptr<Device>> devices_;
  Watchdog watchdog_;
};

}  // namespace troupe::nccl
