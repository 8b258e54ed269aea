#pragma once

#include <algorithm>
#include <string>
#include <string_view>

#include "tools/troupe/http/http_response.h"

namespace troupe::http {

/// What the reader makes of an answer that comes in pieces of so many bytes and then ends.
struct ReadWhole {
  Status status;
  std::string body;
  bool done = false, keep_alive = false;
};

inline ReadWhole read_whole(std::string_view bytes, std::size_t piece) {
  ReadWhole read;
  HttpResponse response({[](const HttpHead&) { return Status(); },
                         [&](std::string_view more) {
                           read.body += more;
                           return Status();
                         }});
  while (!bytes.empty() && read.status.ok() && !response.done()) {
    const std::string_view next = bytes.substr(0, piece);
    bytes.remove_prefix(next.size());
    read.status = response.feed(next);
  }
  if (read.status.ok()) read.status = response.finish();
  read.done = response.done();
  read.keep_alive = response.keep_alive();
  return read;
}

}  // namespace troupe::http
