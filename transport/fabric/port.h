#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "transport/link_messages.h"

namespace troupe::transport {

/// An interface's address as the system has it.
struct InterfaceAddress {
  std::string interface;
  std::string host;  ///< numeric
};
std::vector<InterfaceAddress> interface_addresses();  ///< of those that are up

/// What an interface's files in `folder`, as /sys/class/net has them, say of it.
struct InterfaceFacts {
  std::int32_t numa_node = -1;   ///< -1: not known, or it has none
  std::int32_t speed_mbit = -1;  ///< the same
};
InterfaceFacts interface_facts(const std::string& folder, const std::string& interface);

/// Fills in what is known of the interfaces, of which one has that numeric host, and of what is
/// behind that one. `asked_for`: as --bind-interface named it; empty: it was not asked for.
void describe_interfaces(const std::string& own, const std::string& asked_for, FabricPort& port);

}  // namespace troupe::transport
