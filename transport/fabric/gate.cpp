#include "transport/fabric/gate.h"

#include <netinet/in.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace troupe::transport {
namespace {

/// Several nodes of one machine may start at once.
constexpr int kBacklog = 1024;

Error system_error(const std::string& what) {
  return unavailable(what + ": " + std::strerror(errno) + ".");
}

Result<Descriptor> new_socket(int family) {
  Descriptor socket(::socket(family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket) return system_error("A socket could not be made");
  return socket;
}

Result<Descriptor> bound_socket(const SocketAddress& at) {
  auto socket = new_socket(at.storage.ss_family);
  if (!socket) return socket;
  const int on = 1, off = 0;
  setsockopt(socket->get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  // "Any" is of both families.
  if (at.storage.ss_family == AF_INET6)
    setsockopt(socket->get(), IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
  if (bind(socket->get(), at.get(), at.length) != 0) {
    return system_error("This node's bulk lane cannot use " + at.text());
  }
  return socket;
}

/// A port of all addresses, of both families where there are two.
Result<Descriptor> any_port() {
  if (auto both = bound_socket(*parse_socket_address("::", 0)); both.ok()) return both;
  return bound_socket(*parse_socket_address("0.0.0.0", 0));
}

Result<SocketAddress> address_of(int fd) {
  SocketAddress address;
  address.length = sizeof(address.storage);
  if (getsockname(fd, address.get(), &address.length) != 0)
    return system_error("A socket's address cannot be read");
  return address.unmapped();
}

bool watch(int epoll, int operation, int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  return epoll_ctl(epoll, operation, fd, &event) == 0;
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
  std::swap(fd_, other.fd_);
  return *this;
}

Descriptor::~Descriptor() {
  if (fd_ >= 0) ::close(fd_);
}

Result<std::unique_ptr<Gate>> Gate::make(const std::optional<SocketAddress>& at, int epoll) {
  std::unique_ptr<Gate> gate(new Gate);
  gate->epoll_ = epoll;
  auto reservation = at ? bound_socket(*at) : any_port();
  if (!reservation) return reservation.error();
  gate->reservation_ = std::move(*reservation);
  auto address = address_of(gate->reservation_.get());
  if (!address) return address.error();
  gate->address_ = *address;
  return gate;
}

bool Gate::owns(int fd) const {
  return std::any_of(callers_.begin(), callers_.end(),
                     [fd](const Caller& caller) { return caller.socket.get() == fd; });
}

Status Gate::open(SocketAddress at) {
  at.set_port(port());
  if (listener_ && at == listens_at_) return {};
  listener_ = Descriptor();
  auto socket = bound_socket(at);
  if (!socket) return socket.error();
  if (listen(socket->get(), kBacklog) != 0 ||
      !watch(epoll_, EPOLL_CTL_ADD, socket->get(), EPOLLIN)) {
    return system_error("This node's bulk lane cannot listen at " + at.text());
  }
  listener_ = std::move(*socket);
  listens_at_ = at;
  return {};
}

void Gate::close() {
  callers_.clear();
  listener_ = Descriptor();
}

void Gate::accept_callers(TimePoint now) {
  for (;;) {
    Descriptor socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!socket) {
      // Out of descriptors: the oldest silent caller makes room.
      if ((errno == EMFILE || errno == ENFILE) && !callers_.empty()) {
        ++strangers_;
        callers_.pop_front();
        continue;
      }
      return;
    }
    if (callers_.size() >= limits::kUnauthenticatedConnectionsMax) {
      ++strangers_;
      callers_.pop_front();
    }
    if (!watch(epoll_, EPOLL_CTL_ADD, socket.get(), EPOLLIN)) continue;
    callers_.push_back({std::move(socket), now + limits::kHandshakeDeadline, {}, 0});
  }
}

std::list<Gate::Caller>::iterator Gate::find(int fd) {
  return std::find_if(callers_.begin(), callers_.end(),
                      [fd](const Caller& caller) { return caller.socket.get() == fd; });
}

std::optional<GateHello> Gate::read(int fd) {
  const auto caller = find(fd);
  if (caller == callers_.end()) return std::nullopt;
  const ssize_t n = recv(fd, caller->bytes.data() + caller->filled,
                         caller->bytes.size() - caller->filled, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::nullopt;
  if (n > 0) {
    caller->filled += static_cast<std::size_t>(n);
    if (caller->filled < caller->bytes.size()) return std::nullopt;
    if (auto hello = parse_gate_hello(caller->bytes)) return *hello;
  }
  ++strangers_;
  callers_.erase(caller);
  return std::nullopt;
}

std::optional<SocketAddress> Gate::came_to(int fd) const {
  auto address = address_of(fd);
  if (!address) return std::nullopt;
  address->set_port(0);
  return *address;
}

void Gate::answer(int fd, const GateReply& reply) {
  const auto caller = find(fd);
  if (caller == callers_.end()) return;
  const auto bytes = encode(reply);
  // An empty socket takes 16 bytes at once; a caller that misses them asks again.
  (void)!send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (reply.verdict != GateVerdict::kAdmitted) ++strangers_;
  callers_.erase(caller);
}

void Gate::hang_up_late(TimePoint now) {
  while (!callers_.empty() && callers_.front().deadline <= now) {
    ++strangers_;
    callers_.pop_front();
  }
}

std::optional<TimePoint> Gate::next_deadline() const {
  if (callers_.empty()) return std::nullopt;
  return callers_.front().deadline;
}

Result<std::unique_ptr<GateCall>> GateCall::start(const std::optional<SocketAddress>& from,
                                                  const SocketAddress& to, const GateHello& hello,
                                                  int epoll) {
  std::unique_ptr<GateCall> call(new GateCall);
  call->epoll_ = epoll;
  call->hello_ = encode(hello);
  auto socket = from ? bound_socket(*from) : new_socket(to.storage.ss_family);
  if (!socket) return invalid_argument(socket.error().message);
  call->socket_ = std::move(*socket);
  if (::connect(call->fd(), to.get(), to.length) != 0 && errno != EINPROGRESS) {
    // An address that leads nowhere else, such as that of lo, or none of this family.
    const bool own = errno == EINVAL || errno == EADDRNOTAVAIL;
    const Error why =
        system_error("there is no way to " + to.text() + (from ? " from " + from->text() : ""));
    return own ? invalid_argument(why.message) : why;
  }
  if (!watch(epoll, EPOLL_CTL_ADD, call->fd(), EPOLLOUT)) {
    return system_error("The gate cannot be waited for");
  }
  return call;
}

Result<std::optional<GateReply>> GateCall::go_on() {
  if (!sent_) {
    int failure = 0;
    socklen_t length = sizeof(failure);
    getsockopt(fd(), SOL_SOCKET, SO_ERROR, &failure, &length);
    if (failure != 0) {
      return unavailable(std::string("the gate does not answer: ") + std::strerror(failure));
    }
    const ssize_t n = send(fd(), hello_.data(), hello_.size(), MSG_NOSIGNAL);
    if (n != static_cast<ssize_t>(hello_.size())) return unavailable("the gate hung up");
    sent_ = true;
    watch(epoll_, EPOLL_CTL_MOD, fd(), EPOLLIN);
    return std::optional<GateReply>();
  }
  const ssize_t n = recv(fd(), reply_.data() + filled_, reply_.size() - filled_, 0);
  if (n < 0 && (errno == EAGAIN || errno == EINTR)) return std::optional<GateReply>();
  if (n <= 0) return unavailable("the gate hung up");
  filled_ += static_cast<std::size_t>(n);
  if (filled_ < reply_.size()) return std::optional<GateReply>();
  auto reply = parse_gate_reply(reply_);
  if (!reply) return reply.error();
  return std::optional<GateReply>(*reply);
}

}  // namespace troupe::transport
