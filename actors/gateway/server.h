#pragma once

// For gateway.cpp alone: it pulls in Asio.

#include <utility>  // Asio 1.74's awaitable.hpp needs it and does not include it.

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/system/error_code.hpp>
#include <cstddef>
#include <memory>
#include <optional>
#include <unordered_set>

#include "actors/gateway/api.h"
#include "actors/gateway/gateway.h"
#include "actors/gateway/request_log.h"
#include "runtime/fair_worker.h"

namespace troupe {

namespace asio = boost::asio;
using tcp = asio::ip::tcp;
using boost::system::error_code;

/// A connection as the server sees it. All calls on the I/O thread.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void on_stop() = 0;   ///< take no further request; close as soon as nothing runs
  virtual void on_abort() = 0;  ///< cancel what runs and close
};

/// What the connections of one gateway share. Everything but `io`, the workers and the rooms is of
/// the I/O thread.
struct Server {
  Server(GatewayOptions o, GenerationService& s, NamedRequests& r, const ClusterView& c,
         const GatewayModel& m, Metrics& metrics_of)
      : options(std::move(o)),
        service(s),
        requests(r),
        model(m),
        metrics(metrics_of),
        answers(options.answers),
        views({.all_bytes_max = limits::kHttpViewsBytesMax}),
        api(options.doors, r, c, m, metrics_of, answers),
        workers(static_cast<std::size_t>(options.threads)) {}

  const GatewayOptions options;
  GenerationService& service;
  NamedRequests& requests;
  const GatewayModel& model;
  Metrics& metrics;
  AnswerRoom answers;
  AnswerRoom views;  // Metrics and the like, so that answers do not keep them out.
  const Api api;

  asio::io_context io{1};
  asio::thread_pool workers;        // Read JSON and tokenise, so that no request stalls streams,
  asio::thread_pool big_worker{1};  // and big ones do not stall small ones.
  FairWorker grammar_worker;        // Schemas may take a second each: nobody else waits for them,
  FairWorker big_grammar_worker{10};  // and no small one for the large, which take several, and
                                      // stand back behind everything.
  std::optional<asio::ssl::context> tls;

  std::unordered_set<Connection*> connections;
  std::size_t refusals = 0;      // Connections that are being told that there are too many.
  std::size_t bodies_bytes = 0;  // Received and not yet read, all connections.
  RequestLog log;
  bool stopping = false;
};

}  // namespace troupe
