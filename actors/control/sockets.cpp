#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>

#include "actors/control/dialer.h"

namespace troupe::control {
namespace {

void set_option(int fd, int level, int name, int value) {
  ::setsockopt(fd, level, name, &value, sizeof value);
}

HostPort numeric(const sockaddr_storage& address, socklen_t size) {
  std::array<char, NI_MAXHOST> host{};
  std::array<char, NI_MAXSERV> port{};
  if (::getnameinfo(reinterpret_cast<const sockaddr*>(&address), size, host.data(), host.size(),
                    port.data(), port.size(), NI_NUMERICHOST | NI_NUMERICSERV) != 0)
    return {"unknown", 0};
  return {host.data(), static_cast<std::uint16_t>(std::strtoul(port.data(), nullptr, 10))};
}

std::string end_of(int fd, int (*which)(int, sockaddr*, socklen_t*)) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  if (which(fd, reinterpret_cast<sockaddr*>(&address), &size) != 0) return "unknown";
  return to_string(numeric(address, size));
}

/// Tries one address of the host; -1 and errno if it does not work.
int listen_at(const addrinfo& at) {
  const int fd = ::socket(at.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  set_option(fd, SOL_SOCKET, SO_REUSEADDR, 1);  // a head that restarts finds its port in TIME_WAIT
  if (::bind(fd, at.ai_addr, at.ai_addrlen) == 0 && ::listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  ::close(fd);
  errno = error;
  return -1;
}

}  // namespace

void set_control_socket_options(int fd) {
  constexpr int kUnacknowledgedMs = 10000, kIdleS = 5, kIntervalS = 2, kProbes = 3;
  set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
  set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, kUnacknowledgedMs);
  set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1);
  set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, kIdleS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, kIntervalS);
  set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, kProbes);
}

std::string peer_of(int fd) { return end_of(fd, ::getpeername); }
std::string own_end_of(int fd) { return end_of(fd, ::getsockname); }

Result<Listening> open_listener(const HostPort& address) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int looked_up = ::getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (looked_up != 0)
    return unavailable("Cannot listen on " + address.host + ": " + ::gai_strerror(looked_up) +
                       "; name an address of this machine with --listen.");
  const int fd = listen_at(*found);
  const int error = errno;
  ::freeaddrinfo(found);
  if (fd < 0 && error == EADDRINUSE)
    return unavailable("Port " + port + " on " + address.host +
                       " is in use; choose another with --listen.");
  if (fd < 0 && error == EADDRNOTAVAIL)
    return unavailable("Cannot listen on " + address.host +
                       ": it is no address of this machine; choose another with --listen.");
  if (fd < 0)
    return unavailable("Cannot listen on " + to_string(address) + ": " + std::strerror(error) +
                       "; choose another with --listen.");
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  ::getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size);
  return Listening{fd, numeric(bound, size).port};
}

}  // namespace troupe::control
