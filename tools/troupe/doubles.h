#pragma once

#include <functional>
#include <string>
#include <vector>

#include "actors/device/device.h"
#include "runtime/result.h"
#include "tools/troupe/device_list.h"

namespace troupe {
struct HeadOptions;
struct WorkerOptions;
}

namespace troupe::cli {

/// What a program for tests puts in the place of hardware, and of what goes well. `troupe` itself
/// has none of it: main() says so by passing nothing.
struct Doubles {
  /// The devices of the kind `cuda-twin`, of which each of several workers has its own. Empty: this
  /// program has none.
  std::function<Result<std::vector<Device::Options>>(const DeviceList&, int worker, int workers)>
      twins = {};
  /// What a worker is made of, once it is known; empty: it stays so.
  std::function<void(WorkerOptions&)> change_worker = {};
  /// The same of a head.
  std::function<void(HeadOptions&)> change_head = {};
  std::string numa_nodes = {};  ///< the folder that tells of them; empty: the kernel's
  std::string nccl = {};        ///< a library in the place of libnccl and the driver; empty: those
};

}  // namespace troupe::cli
