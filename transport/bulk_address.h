#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "runtime/result.h"

/// Where peers find a node's bulk lane. A worker that joins by loopback is on the head's machine
/// and knows no address that others know it by; they find it where they find the head:
///
///     worker at the head          "net:head:4711"        reader
///     joins 127.0.0.1 ───────────────► head ───────────► joined 10.0.0.1, goes to 10.0.0.1:4711
namespace troupe {

/// "net:10.0.0.1:4711", "net:[fd00::1]:4711", "net:head:4711".
struct BulkAddress {
  std::string provider;
  std::string host;  ///< numeric, a link-local one without its scope; empty: the head's machine
  std::uint16_t port = 0;

  bool operator==(const BulkAddress&) const = default;
};
std::string to_string(const BulkAddress& address);
/// kInvalidArgument.
Result<BulkAddress> parse_bulk_address(std::string_view text);

/// The two ends of a worker's control connection as it sees them: numeric hosts, link-local ones
/// with their scope ("fe80::1%eth0"). Of a head in the same process: loopback.
struct ControlWay {
  std::string own = "127.0.0.1";
  std::string head = "127.0.0.1";
};

/// Of a socket's end: "10.0.0.1" of "10.0.0.1:99" and of "[::ffff:10.0.0.1]:99".
std::string host_of(std::string_view end);
bool is_loopback(const std::string& host);
/// What a node that came by that way tells others.
std::string advertised_host(const ControlWay& way);
/// Where a node that came by that way finds a peer.
/// kInvalidArgument: a link-local address, of which it does not know the link.
Result<std::string> reached_host(const BulkAddress& peer, const ControlWay& way);

}  // namespace troupe
