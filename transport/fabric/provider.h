#pragma once

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_eq.h>
#include <sys/socket.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "transport/fabric/fabric.h"
#include "transport/fabric/libfabric_api.h"
#include "transport/fabric/wire.h"

namespace troupe::transport {

/// Owns a libfabric object.
template <class T>
struct FidClose {
  void operator()(T* object) const { fi_close(&object->fid); }
};
template <class T>
using Fid = std::unique_ptr<T, FidClose<T>>;

struct InfoFree {
  void operator()(fi_info* info) const { libfabric().freeinfo(info); }
};
using InfoPtr = std::unique_ptr<fi_info, InfoFree>;

/// "net could not open a domain: No data available"
Error libfabric_error(const std::string& what, long status);

/// An IPv4 or IPv6 address and port.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  sockaddr* get() { return reinterpret_cast<sockaddr*>(&storage); }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
  std::uint16_t port() const;
  void set_port(std::uint16_t port);
  std::string text() const;  ///< "10.0.0.1:4711", "[::1]:4711"
  std::string host() const;  ///< "10.0.0.1", "::1"
  /// An IPv4 address that a socket of both families shows as IPv6 ("::ffff:10.0.0.1") as it is.
  SocketAddress unmapped() const;
  bool operator==(const SocketAddress& other) const;
};
/// Of a numeric host, which may have a scope ("fe80::1%eth0"). kInvalidArgument.
Result<SocketAddress> parse_socket_address(const std::string& host, std::uint16_t port);
/// The address of the interface if one is named, else the host.
Result<SocketAddress> bind_address(const FabricOptions& options);

/// The chosen provider and what all connections share. Used by one thread after it is made.
struct Provider {
  std::string name;  ///< "net"
  std::string why;   ///< "asked for", "auto: no verbs device at 10.0.0.1"
  SocketAddress host;  ///< where it was chosen
  bool fixed = false;  ///< it is there and nowhere else: an interface was named, or has the device
  InfoPtr info;
  Fid<fid_fabric> fabric;
  Fid<fid_eq> eq;
  Fid<fid_domain> domain;
  Fid<fid_cq> cq;
  int eq_fd = -1;
  int cq_fd = -1;

  /// Memory must be registered before it is sent from or received into.
  bool registers_memory() const { return (info->domain_attr->mr_mode & FI_MR_LOCAL) != 0; }
  /// For an endpoint from one address to another, or for a listener; null if memory lacks.
  InfoPtr info_for(const SocketAddress* from, const SocketAddress* to) const;
};
/// What libfabric says of the device that it uses (fi_nic(3)). Its providers fill in more or less
/// of it, or none: null.
FabricAdapter adapter_of(const fid_nic* nic);
/// Those that work at that address, in the order in which kAuto takes them.
std::vector<std::string> usable_providers(const SocketAddress& host);
Result<std::unique_ptr<Provider>> open_provider(const FabricOptions& options);

/// The provider's own listener. Strangers can hang it (see README.md), so it is open only between
/// the gate's admission of a peer and that peer's connection request, on a port of the moment, and
/// lives in a libfabric object of its own, which is thrown away with whatever strangers left in it.
class Doorway {
 public:
  struct Request {
    InfoPtr info;  ///< holds the connection's handle: pass it to an endpoint, or to `refuse`
    std::vector<std::byte> data;
  };

  static Result<std::unique_ptr<Doorway>> open(const Provider& provider, const SocketAddress& at);
  ~Doorway();

  const SocketAddress& at() const { return at_; }  ///< port 0
  std::uint16_t port() const { return port_; }
  int wait_fd() const { return wait_fd_; }
  /// The next connection request, if one is there.
  std::optional<Request> next();
  void refuse(Request request);

 private:
  Doorway() = default;

  Fid<fid_fabric> fabric_;
  Fid<fid_eq> eq_;
  Fid<fid_pep> pep_;
  SocketAddress at_;
  std::uint16_t port_ = 0;
  int wait_fd_ = -1;
};

}  // namespace troupe::transport
