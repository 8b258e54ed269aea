#pragma once

// For gateway.cpp alone: it pulls in Asio.

#include <cstddef>
#include <string>
#include <utility>

#include "actors/gateway/server.h"
#include "runtime/limits.h"

namespace troupe {

/// A body that arrives, and what it takes of the common allowance until it is let go.
struct IncomingBody {
  explicit IncomingBody(Server& of) : server(of) {}
  ~IncomingBody() { let_go(); }
  /// False if there is no room for so many bytes.
  bool grow_to(std::size_t size) {
    server.bodies_bytes += size - counted;
    counted = size;
    const std::size_t most = server.options.bodies_bytes_max;
    const bool small = size <= limits::kHttpSmallBodyBytesMax;
    return server.bodies_bytes <= (small ? most : most - most / limits::kHttpSmallBodiesPart);
  }
  void let_go() {
    std::string().swap(text);
    server.bodies_bytes -= std::exchange(counted, 0);
  }

  Server& server;
  std::string text = {};
  std::size_t counted = 0;
};

}  // namespace troupe
