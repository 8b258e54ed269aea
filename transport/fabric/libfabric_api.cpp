#include "transport/fabric/libfabric_api.h"

#include <dlfcn.h>

#include <cassert>
#include <csignal>
#include <cstring>
#include <map>
#include <string>

namespace troupe::transport {
namespace {

constexpr const char* kLibrary = "libfabric.so.1";

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
    void* library = dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
    if (!library) {
      status = unavailable("Workers exchange tensors through libfabric, which cannot be loaded (" +
                           std::string(dlerror()) + "); install the package libfabric1.");
      return;
    }
    find(library, "fi_getinfo", api.getinfo);
    find(library, "fi_freeinfo", api.freeinfo);
    find(library, "fi_dupinfo", api.dupinfo);
    find(library, "fi_fabric", api.fabric);
    find(library, "fi_strerror", api.strerror);
  }

  template <class Function>
  void find(void* library, const char* name, Function& function) {
    void* symbol = dlsym(library, name);
    if (!symbol && status.ok())
      status = unavailable(std::string(kLibrary) + " lacks " + name +
                           "; install the package libfabric1 of this system.");
    std::memcpy(&function, &symbol, sizeof function);
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
