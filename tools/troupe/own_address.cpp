#include "tools/troupe/own_address.h"

#include "runtime/host.h"
#include "transport/bulk_address.h"
#include "transport/fabric/port.h"

namespace troupe::cli {

std::string own_address() {
  // Places in no network (RFC 5737, RFC 3849): the routes to them are those that lead out.
  for (const char* outside : {"192.0.2.1", "2001:db8::1"})
    if (const std::string own = local_address_towards(outside, 9); !is_loopback(own)) return own;
  for (const auto& [interface, host] : transport::interface_addresses())
    if (!is_loopback(host) && host.find('%') == host.npos) return host;
  return "127.0.0.1";
}

}  // namespace troupe::cli
