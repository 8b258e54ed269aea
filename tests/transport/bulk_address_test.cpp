#include "transport/bulk_address.h"

#include <doctest/doctest.h>

#include <vector>

namespace troupe {
namespace {

TEST_CASE("an address is written as it is read") {
  for (const BulkAddress& address :
       {BulkAddress{"net", "10.0.0.1", 4711}, BulkAddress{"tcp", "fd00::1", 1},
        BulkAddress{"verbs", "fe80::1", 65535}, BulkAddress{"net", "", 4711}}) {
    CAPTURE(to_string(address));
    const auto read = parse_bulk_address(to_string(address));
    REQUIRE(read.ok());
    CHECK(*read == address);
  }
  CHECK(to_string(BulkAddress{"net", "", 4711}) == "net:head:4711");
  CHECK(to_string(BulkAddress{"net", "fd00::1", 4711}) == "net:[fd00::1]:4711");
  for (const char* text : {"", "net", "net:1", "net:10.0.0.1:0", "net:10.0.0.1:99999", "none",
                           "net:gpu7:99", "net::99", "net:10.0.0.1:99 ", "net:[fe80::1%eth0]:9"}) {
    CAPTURE(text);
    CHECK_FALSE(parse_bulk_address(text).ok());
  }
}

TEST_CASE("the host of a socket's end") {
  CHECK(host_of("10.0.0.1:99") == "10.0.0.1");
  CHECK(host_of("[::ffff:10.0.0.1]:99") == "10.0.0.1");
  CHECK(host_of("[fd00::1]:99") == "fd00::1");
  CHECK(host_of("[fe80::1%eth0]:99") == "fe80::1%eth0");
}

TEST_CASE("loopback has many names") {
  for (const char* host : {"127.0.0.1", "127.0.1.1", "127.255.0.9", "::1"})
    CHECK(is_loopback(host));
  for (const char* host : {"10.0.0.1", "128.0.0.1", "::2", "fe80::1", "", "head"})
    CHECK_FALSE(is_loopback(host));
}

TEST_CASE("where a worker is to be found, and where it finds others") {
  const ControlWay local{"127.0.0.1", "127.0.1.1"}, at_head{"10.0.0.1", "10.0.0.1"},
      remote{"10.0.0.2", "10.0.0.1"}, behind{"10.9.0.5", "10.1.0.1"}, v6{"fd00::2", "fd00::1"},
      link{"fe80::2%eth0", "fe80::1%eth0"}, local6{"::1", "::1"};
  struct Row {
    ControlWay peer, reader;
    std::string advertised, reached;  ///< of the peer; "": it cannot be
  };
  const std::vector<Row> rows = {
      {remote, local, "10.0.0.2", "10.0.0.2"},
      {local, remote, "", "10.0.0.1"},
      {local, behind, "", "10.1.0.1"},  // by the head's address that this one uses
      {local, at_head, "", "10.0.0.1"},
      {local, local, "", "127.0.0.1"},  // not 127.0.1.1: it listens at one of them
      {local6, local, "", "127.0.0.1"},
      {local, local6, "", "127.0.0.1"},
      {local, v6, "", "fd00::1"},
      {local, link, "", "fe80::1%eth0"},
      {v6, local, "fd00::2", "fd00::2"},
      {link, link, "fe80::2", "fe80::2%eth0"},
      {link, ControlWay{"fe80::3%ens5", "fe80::1%ens5"}, "fe80::2", "fe80::2%ens5"},
  };
  for (const Row& row : rows) {
    CAPTURE(row.peer.own);
    CAPTURE(row.reader.own);
    CHECK(advertised_host(row.peer) == row.advertised);
    const auto host = reached_host({"net", advertised_host(row.peer), 4711}, row.reader);
    REQUIRE(host.ok());
    CHECK(*host == row.reached);
  }
  const auto unknown = reached_host({"net", "fe80::2", 4711}, local);
  REQUIRE_FALSE(unknown.ok());
  CHECK(unknown.error().message.find("fe80::2") != std::string::npos);
}

}  // namespace
}  // namespace troupe
