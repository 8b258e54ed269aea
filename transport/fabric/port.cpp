#include "transport/fabric/port.h"

#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <memory>

#include "transport/fabric/adapter.h"

namespace troupe::transport {
namespace {

/// -1 if there is no such number: the kernel says so itself for what it does not know.
std::int32_t number_in(const std::string& file) {
  std::int64_t value = -1;
  std::ifstream(file) >> value;
  return value >= 0 && value <= INT32_MAX ? static_cast<std::int32_t>(value) : -1;
}

std::string host_of(const sockaddr* address) {
  const socklen_t length =
      address->sa_family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
  std::array<char, NI_MAXHOST> host{};
  if (getnameinfo(address, length, host.data(), host.size(), nullptr, 0, NI_NUMERICHOST) != 0)
    return {};
  return host.data();
}

}  // namespace

std::vector<InterfaceAddress> interface_addresses() {
  std::vector<InterfaceAddress> found;
  ifaddrs* list = nullptr;
  if (getifaddrs(&list) != 0) return found;
  const std::unique_ptr<ifaddrs, void (*)(ifaddrs*)> owner(list, freeifaddrs);
  for (const ifaddrs* i = list; i; i = i->ifa_next) {
    if (!i->ifa_addr || (i->ifa_flags & IFF_UP) == 0) continue;
    const int family = i->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    found.push_back({i->ifa_name, host_of(i->ifa_addr)});
  }
  return found;
}

InterfaceFacts interface_facts(const std::string& folder, const std::string& interface) {
  if (interface.empty()) return {};
  const std::string of = folder + "/" + interface + "/";
  return {number_in(of + "device/numa_node"), number_in(of + "speed")};
}

void describe_interfaces(const std::string& own, const std::string& asked_for, FabricPort& port) {
  port.interface = asked_for;
  port.interface_why =
      asked_for.empty() ? "it has the control lane's address" : "--bind-interface names it";
  for (const auto& [interface, host] : interface_addresses()) {
    if (port.interface.empty() && host == own) port.interface = interface;
    if (port.interfaces.size() < kFabricNamesMax &&
        std::find(port.interfaces.begin(), port.interfaces.end(), interface) ==
            port.interfaces.end())
      port.interfaces.push_back(interface);
  }
  std::sort(port.interfaces.begin(), port.interfaces.end());
  constexpr const char* kInterfaces = "/sys/class/net";
  port.adapter = completed(port.adapter, adapter_behind(kInterfaces, port.interface));
  const InterfaceFacts facts = interface_facts(kInterfaces, port.interface);
  port.numa_node = facts.numa_node;
  port.speed_mbit = facts.speed_mbit;
}

}  // namespace troupe::transport
