#include "actors/control/caf_system.h"

#include <sys/resource.h>

#include <algorithm>
#include <caf/actor_system.hpp>
#include <caf/actor_system_config.hpp>
#include <caf/io/middleman.hpp>
#include <exception>

namespace troupe {
namespace {

/// Thousands of connections need more descriptors than the usual soft limit; the hard limit is the
/// administrator's word.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur >= limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

struct Config : caf::actor_system_config {
  explicit Config(const CafOptions& options) {
    load<caf::io::middleman>();
    // One shared queue on a condition variable: work stealing polls when idle.
    set("scheduler.policy", caf::atom("sharing"));
    set("scheduler.max-threads", static_cast<std::size_t>(options.scheduler_threads));
    // No BASP: neither its workers nor its connections that come by themselves.
    set("middleman.workers", std::size_t{0});
    set("middleman.enable-automatic-connections", false);
  }
};

}  // namespace

struct CafSystem::Impl {
  explicit Impl(const CafOptions& options) : config(options), system(config) {}
  Config config;
  caf::actor_system system;
};

Result<std::unique_ptr<CafSystem>> CafSystem::make(const CafOptions& options) {
  if (options.scheduler_threads < 1)
    return invalid_argument("The actor runtime needs at least one scheduler thread.");
  raise_descriptor_limit();
  try {
    return std::unique_ptr<CafSystem>(new CafSystem(std::make_unique<Impl>(options)));
  } catch (const std::exception& exception) {
    return internal_error(std::string("The actor runtime cannot start: ") + exception.what() + ".");
  }
}

CafSystem::CafSystem(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
CafSystem::~CafSystem() = default;

caf::actor_system& CafSystem::system() { return impl_->system; }

}  // namespace troupe
