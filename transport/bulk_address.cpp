#include "transport/bulk_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include <charconv>

namespace troupe {
namespace {

constexpr std::string_view kHeadsMachine = "head";

std::string without_scope(const std::string& host) { return host.substr(0, host.find('%')); }

bool is_numeric(const std::string& host) {
  in6_addr any{};
  return inet_pton(AF_INET, host.c_str(), &any) == 1 ||
         inet_pton(AF_INET6, host.c_str(), &any) == 1;
}

bool is_link_local(const std::string& host) {
  in6_addr v6{};
  return inet_pton(AF_INET6, without_scope(host).c_str(), &v6) == 1 && IN6_IS_ADDR_LINKLOCAL(&v6);
}

}  // namespace

std::string to_string(const BulkAddress& address) {
  const bool v6 = address.host.find(':') != std::string::npos;
  const std::string host = address.host.empty() ? std::string(kHeadsMachine) : address.host;
  return address.provider + ":" + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(address.port);
}

Result<BulkAddress> parse_bulk_address(std::string_view text) {
  const auto wrong = [&] {
    return invalid_argument("'" + std::string(text) + "' is not the address of a fabric.");
  };
  const auto first = text.find(':');
  const auto last = text.rfind(':');
  if (first == text.npos || first == last) return wrong();
  BulkAddress address{std::string(text.substr(0, first)),
                      std::string(text.substr(first + 1, last - first - 1))};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + last + 1, end, address.port);
  if (parsed.ec != std::errc() || parsed.ptr != end || address.port == 0) return wrong();
  std::string& host = address.host;
  if (host.size() > 2 && host.front() == '[' && host.back() == ']')
    host = host.substr(1, host.size() - 2);
  if (host == kHeadsMachine)
    host.clear();
  else if (!is_numeric(host))
    return wrong();
  return address;
}

std::string host_of(std::string_view end) {
  constexpr std::string_view kMapped = "::ffff:";
  std::string_view host = end.substr(0, end.rfind(':'));
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  if (host.starts_with(kMapped) && host.find('.') != host.npos) host.remove_prefix(kMapped.size());
  return std::string(host);
}

bool is_loopback(const std::string& host) {
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return ntohl(v4.s_addr) >> 24 == 127;
  in6_addr v6{};
  return inet_pton(AF_INET6, host.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::string advertised_host(const ControlWay& way) {
  return is_loopback(way.own) ? "" : without_scope(way.own);
}

Result<std::string> reached_host(const BulkAddress& peer, const ControlWay& way) {
  if (peer.host.empty()) return is_loopback(way.head) ? "127.0.0.1" : way.head;
  if (!is_link_local(peer.host)) return peer.host;
  if (!is_link_local(way.own))
    return invalid_argument("The address " + peer.host +
                            " counts on one link only, and this node, at " + way.own +
                            ", does not know which; give all nodes addresses that are routed.");
  return peer.host + way.own.substr(way.own.find('%'));
}

}  // namespace troupe
