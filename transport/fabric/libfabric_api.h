#pragma once

#include <rdma/fabric.h>

#include "runtime/result.h"

namespace troupe::transport {

/// What libfabric exports and we use; the rest of its interface is inline in its headers.
struct LibfabricApi {
  decltype(&::fi_getinfo) getinfo = nullptr;
  decltype(&::fi_freeinfo) freeinfo = nullptr;
  decltype(&::fi_dupinfo) dupinfo = nullptr;
  decltype(&::fi_fabric) fabric = nullptr;
  decltype(&::fi_strerror) strerror = nullptr;
};

/// Loads libfabric into the process, once, and for good. Not by the linker: libraries that it
/// brings along install signal handlers and sleep for 0.2 s when they are loaded, which no process
/// shall have that does not use the bulk lane. The handlers are taken out again.
/// kUnavailable if it is not there.
Status load_libfabric();

/// After load_libfabric() has succeeded.
const LibfabricApi& libfabric();

}  // namespace troupe::transport
