#include "transport/fabric/provider.h"

#include <arpa/inet.h>
#include <dirent.h>
#include <ifaddrs.h>
#include <netdb.h>
#include <netinet/in.h>
#include <rdma/fi_errno.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>

namespace troupe::transport {
namespace {

constexpr std::uint32_t kApiVersion = FI_VERSION(1, 15);
/// Completions that may wait to be read; enough for hundreds of connections.
constexpr std::size_t kCompletionQueueSize = 16384;
constexpr std::size_t kEventQueueSize = 1024;

InfoPtr query(const char* provider, const SocketAddress& host) {
  InfoPtr hints(libfabric().dupinfo(nullptr));  // an empty one
  if (!hints) return nullptr;
  hints->caps = FI_MSG;
  hints->ep_attr->type = FI_EP_MSG;
  hints->domain_attr->mr_mode =
      FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY;
  hints->domain_attr->threading = FI_THREAD_DOMAIN;
  hints->fabric_attr->prov_name = strdup(provider);
  fi_info* found = nullptr;
  const int rc = libfabric().getinfo(kApiVersion, host.host().c_str(), "0",
                                     FI_SOURCE | FI_NUMERICHOST, hints.get(), &found);
  return InfoPtr(rc == 0 ? found : nullptr);
}

struct Choice {
  InfoPtr info;
  std::string name;
  std::string why;
};

Result<Choice> choose(FabricKind kind, const SocketAddress& host) {
  switch (kind) {
    case FabricKind::kShm:
    case FabricKind::kEfa:
      return invalid_argument("The fabric '" + std::string(to_string(kind)) +
                              "' is not supported yet; use --fabric net or --fabric tcp.");
    case FabricKind::kNccl:
    case FabricKind::kAuto: {
      if (auto info = query("verbs", host)) {
        return Choice{std::move(info), "verbs", "auto: a verbs device is up"};
      }
      if (auto info = query("net", host)) {
        return Choice{std::move(info), "net", "auto: no verbs device has this address"};
      }
      if (auto info = query("tcp", host)) {
        return Choice{std::move(info), "tcp", "auto: libfabric has neither verbs nor net here"};
      }
      return unavailable("libfabric has no provider for " + host.text() +
                         "; check --bind-interface and that libfabric1 is installed.");
    }
    case FabricKind::kNet:
    case FabricKind::kTcp:
    case FabricKind::kVerbs: break;
  }
  const std::string name(to_string(kind));
  if (auto info = query(name.c_str(), host)) return Choice{std::move(info), name, "asked for"};
  return unavailable("libfabric's provider '" + name + "' cannot be used at " + host.text() +
                     "; use --fabric auto.");
}

/// Which of an interface's addresses is taken: the lowest.
constexpr int kNoAddress = 3;
int rank(const ifaddrs* i) {
  if (!i || !i->ifa_addr) return kNoAddress;
  if (i->ifa_addr->sa_family == AF_INET) return 0;
  if (i->ifa_addr->sa_family != AF_INET6) return kNoAddress;
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(*i->ifa_addr);
  return IN6_IS_ADDR_LINKLOCAL(&v6.sin6_addr) ? 2 : 1;
}

int wait_descriptor(fid* object) {
  int fd = -1;
  return fi_control(object, FI_GETWAIT, &fd) == 0 ? fd : -1;
}

Result<Fid<fid_eq>> open_event_queue(fid_fabric* fabric, int& fd) {
  fi_eq_attr attributes{};
  attributes.size = kEventQueueSize;
  attributes.wait_obj = FI_WAIT_FD;
  fid_eq* eq = nullptr;
  if (const int rc = fi_eq_open(fabric, &attributes, &eq, nullptr)) {
    return libfabric_error("An event queue could not be opened", rc);
  }
  Fid<fid_eq> owner(eq);
  fd = wait_descriptor(&eq->fid);
  if (fd < 0) return unavailable("libfabric's event queue cannot be waited for.");
  return owner;
}

/// The cure for strangers that hang the listener: accepted sockets inherit this timeout, and the
/// provider reads connection headers with blocking calls. Providers do not show the listener's
/// descriptor, so it is looked for among the process's.
void limit_blocking_reads(std::uint16_t port) {
  DIR* directory = opendir("/proc/self/fd");
  if (!directory) return;
  while (const dirent* entry = readdir(directory)) {
    const std::string_view name = entry->d_name;
    int fd = -1;
    int listening = 0;
    socklen_t length = sizeof(listening);
    if (std::from_chars(name.data(), name.data() + name.size(), fd).ec != std::errc() ||
        getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &length) != 0 || !listening) {
      continue;
    }
    SocketAddress bound;
    bound.length = sizeof(bound.storage);
    if (getsockname(fd, bound.get(), &bound.length) != 0 || bound.port() != port) continue;
    const timeval timeout{0, std::chrono::microseconds(limits::kListenerReadTimeout).count()};
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &timeout, sizeof(timeout));
  }
  closedir(directory);
}

}  // namespace

Error libfabric_error(const std::string& what, long status) {
  return unavailable(what + ": " + libfabric().strerror(static_cast<int>(std::labs(status))) + ".");
}

std::uint16_t SocketAddress::port() const {
  if (storage.ss_family == AF_INET) {
    return ntohs(reinterpret_cast<const sockaddr_in&>(storage).sin_port);
  }
  if (storage.ss_family == AF_INET6) {
    return ntohs(reinterpret_cast<const sockaddr_in6&>(storage).sin6_port);
  }
  return 0;
}

void SocketAddress::set_port(std::uint16_t port) {
  if (storage.ss_family == AF_INET) {
    reinterpret_cast<sockaddr_in&>(storage).sin_port = htons(port);
  } else {
    reinterpret_cast<sockaddr_in6&>(storage).sin6_port = htons(port);
  }
}

std::string SocketAddress::host() const {
  std::array<char, INET6_ADDRSTRLEN> host{};
  if (storage.ss_family == AF_INET)
    inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in&>(storage).sin_addr, host.data(),
              host.size());
  else
    inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6&>(storage).sin6_addr, host.data(),
              host.size());
  return host.data();
}

std::string SocketAddress::text() const {
  const std::string shown = storage.ss_family == AF_INET6 ? "[" + host() + "]" : host();
  return shown + ":" + std::to_string(port());
}

SocketAddress SocketAddress::unmapped() const {
  const auto& v6 = reinterpret_cast<const sockaddr_in6&>(storage);
  if (storage.ss_family != AF_INET6 || !IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) return *this;
  SocketAddress plain;
  auto& v4 = reinterpret_cast<sockaddr_in&>(plain.storage);
  v4.sin_family = AF_INET;
  v4.sin_port = v6.sin6_port;
  std::memcpy(&v4.sin_addr, &v6.sin6_addr.s6_addr[12], sizeof(v4.sin_addr));
  plain.length = sizeof(sockaddr_in);
  return plain;
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
}

Result<SocketAddress> parse_socket_address(const std::string& host, std::uint16_t port) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), nullptr, &hints, &found) != 0)
    return invalid_argument("'" + host + "' is not a numeric address.");
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, freeaddrinfo);
  SocketAddress address;
  address.length = found->ai_addrlen;
  std::memcpy(&address.storage, found->ai_addr, found->ai_addrlen);
  address.set_port(port);
  return address;
}

Result<SocketAddress> bind_address(const FabricOptions& options) {
  if (options.bind_interface.empty()) return parse_socket_address(options.host, 0);
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return unavailable("The network interfaces cannot be listed.");
  std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  const ifaddrs* best = nullptr;
  for (const ifaddrs* i = list; i; i = i->ifa_next)
    if (options.bind_interface == i->ifa_name && rank(i) < rank(best)) best = i;
  if (rank(best) < kNoAddress) {
    SocketAddress address;
    address.length =
        best->ifa_addr->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    std::memcpy(&address.storage, best->ifa_addr, address.length);
    address.set_port(0);
    return address;
  }
  return not_found("There is no interface '" + options.bind_interface +
                   "' with an address; `ip address` lists them.");
}

std::vector<std::string> usable_providers(const SocketAddress& host) {
  std::vector<std::string> usable;
  for (const char* name : {"verbs", "net", "tcp"})
    if (query(name, host)) usable.emplace_back(name);
  return usable;
}

FabricAdapter adapter_of(const fid_nic* nic) {
  FabricAdapter adapter;
  if (!nic) return adapter;
  const auto text = [](const char* from) { return from ? std::string(from) : std::string(); };
  if (const fi_device_attr* device = nic->device_attr) {
    adapter.name = text(device->name);
    adapter.vendor_id = text(device->vendor_id);
    adapter.device_id = text(device->device_id);
    adapter.driver = text(device->driver);
    adapter.firmware = text(device->firmware);
  }
  if (nic->bus_attr && nic->bus_attr->bus_type == FI_BUS_PCI) {
    const fi_pci_attr& pci = nic->bus_attr->attr.pci;
    std::array<char, 32> address{};
    std::snprintf(address.data(), address.size(), "%04x:%02x:%02x.%x", pci.domain_id, pci.bus_id,
                  pci.device_id, pci.function_id);
    adapter.pci_address = address.data();
  }
  if (const fi_link_attr* link = nic->link_attr) {
    adapter.network = text(link->network_type);
    if (link->state != FI_LINK_UNKNOWN) adapter.state = link->state == FI_LINK_UP ? "up" : "down";
    adapter.bits_per_s = link->speed;
    adapter.mtu = static_cast<std::uint32_t>(std::min<std::size_t>(link->mtu, UINT32_MAX));
  }
  return adapter;
}

Result<std::unique_ptr<Provider>> open_provider(const FabricOptions& options) {
  if (const Status loaded = load_libfabric(); !loaded.ok()) return loaded.error();
  auto host = bind_address(options);
  if (!host) return host.error();
  auto choice = choose(options.kind, *host);
  if (!choice) return choice.error();
  auto provider = std::make_unique<Provider>();
  provider->name = choice->name;
  provider->why = choice->why;
  provider->host = *host;
  provider->fixed = !options.bind_interface.empty() || choice->name == "verbs";
  provider->info = std::move(choice->info);

  fid_fabric* fabric = nullptr;
  if (const int rc = libfabric().fabric(provider->info->fabric_attr, &fabric, nullptr)) {
    return libfabric_error(provider->name + " could not be opened", rc);
  }
  provider->fabric.reset(fabric);
  auto eq = open_event_queue(fabric, provider->eq_fd);
  if (!eq) return eq.error();
  provider->eq = std::move(*eq);
  fid_domain* domain = nullptr;
  if (const int rc = fi_domain(fabric, provider->info.get(), &domain, nullptr)) {
    return libfabric_error(provider->name + " could not open a domain", rc);
  }
  provider->domain.reset(domain);
  fi_cq_attr attributes{};
  attributes.size = kCompletionQueueSize;
  attributes.format = FI_CQ_FORMAT_MSG;
  attributes.wait_obj = FI_WAIT_FD;
  fid_cq* cq = nullptr;
  if (const int rc = fi_cq_open(domain, &attributes, &cq, nullptr)) {
    return libfabric_error(provider->name + " could not open a completion queue", rc);
  }
  provider->cq.reset(cq);
  provider->cq_fd = wait_descriptor(&cq->fid);
  if (provider->cq_fd < 0) return unavailable("libfabric's completions cannot be waited for.");
  return provider;
}

InfoPtr Provider::info_for(const SocketAddress* from, const SocketAddress* to) const {
  InfoPtr made(libfabric().dupinfo(info.get()));
  if (!made) return nullptr;
  const auto put = [](const SocketAddress* address, void*& at, std::size_t& length) {
    std::free(at);
    at = address ? std::malloc(address->length) : nullptr;
    length = at ? address->length : 0;
    if (at) std::memcpy(at, address->get(), length);
    return !address || at;
  };
  const SocketAddress* any = from ? from : to;
  made->addr_format = any->storage.ss_family == AF_INET ? FI_SOCKADDR_IN : FI_SOCKADDR_IN6;
  const bool done =
      put(from, made->src_addr, made->src_addrlen) && put(to, made->dest_addr, made->dest_addrlen);
  return done ? std::move(made) : nullptr;
}

Result<std::unique_ptr<Doorway>> Doorway::open(const Provider& provider, const SocketAddress& at) {
  std::unique_ptr<Doorway> door(new Doorway);
  door->at_ = at;
  const InfoPtr info = provider.info_for(&at, nullptr);
  if (!info) return resource_exhausted("There is no memory for a listener.");
  fid_fabric* fabric = nullptr;
  if (const int rc = libfabric().fabric(provider.info->fabric_attr, &fabric, nullptr)) {
    return libfabric_error("A listener's fabric could not be opened", rc);
  }
  door->fabric_.reset(fabric);
  auto eq = open_event_queue(fabric, door->wait_fd_);
  if (!eq) return eq.error();
  door->eq_ = std::move(*eq);
  fid_pep* pep = nullptr;
  if (const int rc = fi_passive_ep(fabric, info.get(), &pep, nullptr)) {
    return libfabric_error("A listener could not be made", rc);
  }
  door->pep_.reset(pep);
  int rc = fi_pep_bind(pep, &door->eq_->fid, 0);
  if (rc == 0) rc = fi_listen(pep);
  SocketAddress bound;
  std::size_t length = sizeof(bound.storage);
  if (rc == 0) rc = fi_getname(&pep->fid, &bound.storage, &length);
  if (rc != 0) return libfabric_error("The listener does not listen", rc);
  door->port_ = bound.port();
  limit_blocking_reads(door->port_);
  return door;
}

Doorway::~Doorway() {
  while (auto request = next()) refuse(std::move(*request));
}

std::optional<Doorway::Request> Doorway::next() {
  alignas(fi_eq_cm_entry) std::array<std::byte, 512> event;
  for (;;) {
    std::uint32_t kind = 0;
    const ssize_t n = fi_eq_read(eq_.get(), &kind, event.data(), event.size(), 0);
    if (n == -FI_EAVAIL) {
      fi_eq_err_entry error{};
      fi_eq_readerr(eq_.get(), &error, 0);
      continue;
    }
    if (n < static_cast<ssize_t>(sizeof(fi_eq_cm_entry))) return std::nullopt;
    if (kind != FI_CONNREQ) continue;
    fi_eq_cm_entry entry;
    std::memcpy(&entry, event.data(), sizeof(entry));
    Request request;
    request.info.reset(entry.info);
    request.data.assign(event.begin() + sizeof(entry), event.begin() + n);
    return request;
  }
}

void Doorway::refuse(Request request) {
  fi_reject(pep_.get(), request.info->handle, nullptr, 0);
}

}  // namespace troupe::transport
