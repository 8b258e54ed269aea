#include "transport/fabric/libfabric_api.h"

#include <cassert>
#include <csignal>
#include <map>

#include "runtime/shared_object.h"

namespace troupe::transport {
namespace {

constexpr const char* kLibrary = "libfabric.so.1";
constexpr const char* kInstall =
    "workers exchange tensors through it: install the package libfabric1 of this system";

/// Gives every signal back, at its end, what it did at the beginning.
class KeptSignals {
 public:
  KeptSignals() {
    for (int signal = 1; signal < NSIG; ++signal) {
      struct sigaction action {};
      if (sigaction(signal, nullptr, &action) == 0) kept_.emplace(signal, action);
    }
  }
  ~KeptSignals() {
    for (const auto& [signal, before] : kept_) {
      struct sigaction after {};
      if (sigaction(signal, nullptr, &after) != 0) continue;
      if (after.sa_handler != before.sa_handler || after.sa_flags != before.sa_flags)
        sigaction(signal, &before, nullptr);
    }
  }
  KeptSignals(const KeptSignals&) = delete;
  KeptSignals& operator=(const KeptSignals&) = delete;

 private:
  std::map<int, struct sigaction> kept_;
};

struct Loaded {
  LibfabricApi api;
  Status status;

  Loaded() {
    const KeptSignals kept_signals;
    auto library = SharedObject::open(kLibrary, kInstall);
    if (!library.ok()) {
      status = library.error();
      return;
    }
    library->find("fi_getinfo", api.getinfo);
    library->find("fi_freeinfo", api.freeinfo);
    library->find("fi_dupinfo", api.dupinfo);
    library->find("fi_fabric", api.fabric);
    library->find("fi_strerror", api.strerror);
    status = library->missing(kInstall);
  }
};

const Loaded& loaded() {
  static const Loaded once;
  return once;
}

}  // namespace

Status load_libfabric() { return loaded().status; }

const LibfabricApi& libfabric() {
  assert(loaded().status.ok());
  return loaded().api;
}

}  // namespace troupe::transport
