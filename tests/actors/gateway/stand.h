#pragma once

#include <doctest/doctest.h>
#include <sys/resource.h>

#include <memory>
#include <utility>

#include "actors/gateway/gateway.h"
#include "tests/actors/gateway/fakes.h"
#include "tests/actors/gateway/http_client.h"

namespace troupe::testing {

/// A gateway on a free port before a made-up cluster.
struct Stand {
  explicit Stand(GatewayOptions options = {}, ByteModel of = {}) : model(of) {
    rlimit files{};
    getrlimit(RLIMIT_NOFILE, &files);
    files.rlim_cur = files.rlim_max;
    setrlimit(RLIMIT_NOFILE, &files);
    options.port = 0;
    auto started = Gateway::start(std::move(options), service, service, cluster, model, metrics);
    if (!started) MESSAGE(started.error().message);
    REQUIRE(started.ok());
    gateway = std::move(started).value();
  }
  HttpClient client(bool tls = false) const { return HttpClient(gateway->port(), tls); }

  ByteModel model;
  FakeCluster cluster;
  Metrics metrics{"bytes"};
  FakeService service{model};
  std::unique_ptr<Gateway> gateway;
};

}  // namespace troupe::testing
