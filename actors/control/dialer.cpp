#include "actors/control/dialer.h"

#include <netdb.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cassert>
#include <cerrno>
#include <cstring>
#include <list>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

namespace troupe::control {
namespace {

struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
};

/// Wakes the dialer's thread; shared with look-ups that may outlive the dialer.
struct Wake {
  const int fd = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
  ~Wake() {
    if (fd >= 0) ::close(fd);
  }
  void ring() {
    const std::uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = ::write(fd, &one, sizeof one);
  }
  void quiet() {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd, &count, sizeof count);
  }
};

Result<std::vector<Endpoint>> look_up(const HostPort& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = flags | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const int failed =
      ::getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (failed != 0)
    return not_found("The host name " + address.host +
                     " does not resolve: " + ::gai_strerror(failed) + ".");
  std::vector<Endpoint> endpoints;
  for (const addrinfo* at = found; at; at = at->ai_next) {
    Endpoint endpoint;
    std::memcpy(&endpoint.address, at->ai_addr, at->ai_addrlen);
    endpoint.size = at->ai_addrlen;
    endpoints.push_back(endpoint);
  }
  ::freeaddrinfo(found);
  return endpoints;
}

/// One look-up on a thread that nobody waits for.
struct LookUp {
  HostPort address;
  std::shared_ptr<Wake> wake;
  std::mutex mutex;
  std::optional<Result<std::vector<Endpoint>>> result;  ///< guarded by mutex

  bool answered() {
    const std::lock_guard lock(mutex);
    return result.has_value();
  }
};

Error no_thread(const std::system_error& why) {
  return unavailable("The head cannot be called: no thread is to be had (" + why.code().message() +
                     ").");
}

struct Attempt {
  HostPort address;
  TimePoint deadline;
  DialDone done;
  bool resolved = false;
  std::vector<Endpoint> endpoints;  ///< not yet tried, the next one last
  int fd = -1;
  int error = 0;  ///< of the last endpoint
};

}  // namespace

struct Dialer::Impl {
  std::shared_ptr<Wake> wake = std::make_shared<Wake>();
  std::mutex mutex;
  bool stop = false;               ///< guarded by mutex
  std::vector<Attempt> submitted;  ///< guarded by mutex
  std::list<Attempt> attempts;     // of the thread
  std::shared_ptr<LookUp> lookup;  // of the thread; null if none runs
  std::thread thread;

  void run();
  bool step(Attempt& attempt);
  bool resolve(Attempt& attempt);
  Status start_lookup(const HostPort& address);
  bool connect_next(Attempt& attempt);
  bool finish_connect(Attempt& attempt);
  bool expire(Attempt& attempt);
  bool give(Attempt& attempt);
  void wait();
};

Status Dialer::Impl::start_lookup(const HostPort& address) {
  auto begun = std::make_shared<LookUp>();
  begun->address = address;
  begun->wake = wake;
  try {
    std::thread([shared = begun] {
      auto found = look_up(shared->address, AI_ADDRCONFIG);
      // That leaves out loopback of a family that has no other address: localhost, on IPv6 only.
      if (!found.ok()) found = look_up(shared->address, 0);
      {
        const std::lock_guard lock(shared->mutex);
        shared->result = std::move(found);
      }
      shared->wake->ring();
    }).detach();
  } catch (const std::system_error& why) {
    return no_thread(why);
  }
  lookup = std::move(begun);
  return {};
}

/// True when the attempt is over.
bool Dialer::Impl::resolve(Attempt& attempt) {
  auto numeric = look_up(attempt.address, AI_NUMERICHOST);
  if (!numeric.ok()) {
    const Status begun = lookup ? Status() : start_lookup(attempt.address);
    if (!begun.ok()) {
      attempt.done(begun.error());
      return true;
    }
    const std::lock_guard lock(lookup->mutex);
    if (!(lookup->address == attempt.address) || !lookup->result) return expire(attempt);
    if (!lookup->result->ok()) {
      attempt.done(lookup->result->error());
      return true;
    }
    numeric = *lookup->result;
  }
  attempt.endpoints = std::move(*numeric);
  std::ranges::reverse(attempt.endpoints);
  attempt.resolved = true;
  return connect_next(attempt);
}

bool Dialer::Impl::connect_next(Attempt& attempt) {
  while (!attempt.endpoints.empty()) {
    const Endpoint endpoint = attempt.endpoints.back();
    attempt.endpoints.pop_back();
    attempt.fd =
        ::socket(endpoint.address.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (attempt.fd >= 0) {
      if (::connect(attempt.fd, reinterpret_cast<const sockaddr*>(&endpoint.address),
                    endpoint.size) == 0)
        return give(attempt);
      if (errno == EINPROGRESS) return expire(attempt);
    }
    attempt.error = errno;
    if (attempt.fd >= 0) ::close(attempt.fd);
    attempt.fd = -1;
  }
  attempt.done(unavailable("Nobody answers at " + to_string(attempt.address) + ": " +
                           std::strerror(attempt.error) + "."));
  return true;
}

bool Dialer::Impl::give(Attempt& attempt) {
  set_control_socket_options(attempt.fd);
  attempt.done(Dialed{attempt.fd, peer_of(attempt.fd)});
  attempt.fd = -1;
  return true;
}

bool Dialer::Impl::finish_connect(Attempt& attempt) {
  pollfd ready{attempt.fd, POLLOUT, 0};
  if (::poll(&ready, 1, 0) <= 0) return expire(attempt);
  int error = 0;
  socklen_t size = sizeof error;
  ::getsockopt(attempt.fd, SOL_SOCKET, SO_ERROR, &error, &size);
  if (error == 0) return give(attempt);
  attempt.error = error;
  ::close(attempt.fd);
  attempt.fd = -1;
  return connect_next(attempt);
}

bool Dialer::Impl::expire(Attempt& attempt) {
  if (now() < attempt.deadline) return false;
  if (attempt.fd >= 0) ::close(attempt.fd);
  attempt.fd = -1;
  attempt.done(deadline_exceeded("Nobody answered at " + to_string(attempt.address) + " in time."));
  return true;
}

bool Dialer::Impl::step(Attempt& attempt) {
  if (!attempt.resolved) return resolve(attempt);
  return finish_connect(attempt);
}

/// Sleeps until a socket is ready, somebody rings, or the earliest deadline.
void Dialer::Impl::wait() {
  std::vector<pollfd> sockets = {{wake->fd, POLLIN, 0}};
  int timeout_ms = -1;
  for (const Attempt& attempt : attempts) {
    if (attempt.fd >= 0) sockets.push_back({attempt.fd, POLLOUT, 0});
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(attempt.deadline - now()).count();
    const int left_ms = static_cast<int>(std::clamp<long>(left, 0, 60000));
    timeout_ms = timeout_ms < 0 ? left_ms : std::min(timeout_ms, left_ms);
  }
  ::poll(sockets.data(), sockets.size(), timeout_ms);
  wake->quiet();
}

void Dialer::Impl::run() {
  while (true) {
    {
      const std::lock_guard lock(mutex);
      if (stop) break;
      for (Attempt& attempt : submitted) attempts.push_back(std::move(attempt));
      submitted.clear();
    }
    const bool answered = lookup && lookup->answered();
    attempts.remove_if([this](Attempt& attempt) { return step(attempt); });
    if (answered) {  // taken by all who asked; the others' turn
      lookup.reset();
      continue;
    }
    wait();
  }
  for (Attempt& attempt : attempts)
    if (attempt.fd >= 0) ::close(attempt.fd);
}

Result<std::unique_ptr<Dialer>> Dialer::make() {
  auto impl = std::make_unique<Impl>();
  // Without it the thread would sleep through whatever is submitted.
  if (impl->wake->fd < 0)
    return unavailable("The head cannot be called: " + std::string(std::strerror(errno)) + ".");
  try {
    impl->thread = std::thread([running = impl.get()] { running->run(); });
  } catch (const std::system_error& why) {
    return no_thread(why);
  }
  return std::unique_ptr<Dialer>(new Dialer(std::move(impl)));
}

Dialer::Dialer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Dialer::~Dialer() {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->stop = true;
  }
  impl_->wake->ring();
  impl_->thread.join();
}

void Dialer::dial(const HostPort& address, TimePoint deadline, DialDone done) {
  {
    const std::lock_guard lock(impl_->mutex);
    impl_->submitted.push_back(Attempt{address, deadline, std::move(done), false, {}, -1, 0});
  }
  impl_->wake->ring();
}

}  // namespace troupe::control
