#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "actors/frontend/generation_service.h"
#include "actors/frontend/named_requests.h"
#include "actors/gateway/answer_room.h"
#include "actors/gateway/api.h"
#include "actors/gateway/gateway_model.h"
#include "actors/metrics/metrics.h"
#include "runtime/limits.h"
#include "runtime/result.h"

namespace troupe {

/// How the HTTP door is set up. The limits default to those of runtime/limits.h; tests make them
/// small.
struct GatewayOptions {
  std::string host = "127.0.0.1";  ///< a name or an address
  std::uint16_t port = 8000;       ///< 0: any free one, see Gateway::port()
  Api::Doors doors;                ///< who may ask
  bool expert_metrics = false;     ///< the metrics count each expert's tokens
  std::string tls_cert, tls_key;   ///< PEM files, watched; both or none
  int threads = 2;  ///< that read requests (JSON, tokenising), besides I/O's and one for big ones

  std::size_t connections_max = limits::kHttpConnectionsMax;
  std::size_t body_bytes_max = limits::kHttpBodyBytesMax;
  std::size_t bodies_bytes_max = limits::kHttpBodiesBytesMax;
  std::size_t header_bytes_max = limits::kHttpHeaderBytesMax;
  std::size_t unsent_bytes_max = limits::kHttpUnsentBytesMax;
  AnswerRoom::Limits answers;
  struct Deadlines {
    std::chrono::milliseconds header = limits::kHttpHeaderDeadline;
    std::chrono::milliseconds body = limits::kHttpBodyDeadline;
    std::chrono::milliseconds idle = limits::kHttpIdleDeadline;
    std::chrono::milliseconds write = limits::kHttpWriteDeadline;
  };
  Deadlines deadlines = {};
  /// What a stream without news says: its head, later that it waits.
  struct Silence {
    std::chrono::milliseconds head_after = limits::kHttpStreamHeadAfter;
    std::chrono::milliseconds comment_every = limits::kHttpStreamCommentEvery;
  };
  Silence silence = {};
};

/// What is wrong with them by themselves, before anything is opened: kInvalidArgument, naming the
/// flag to change.
Status check(const GatewayOptions& options);

/// The OpenAI-compatible HTTP server. Owns its threads; one thread does all I/O.
class Gateway {
 public:
  /// Listens when it returns. What is passed in must outlive the gateway. Errors: kInvalidArgument
  /// (host, port in use, certificate, names), each naming the flag to change.
  static Result<std::unique_ptr<Gateway>> start(GatewayOptions options, GenerationService& service,
                                                NamedRequests& requests, ClusterView& cluster,
                                                const GatewayModel& model, Metrics& metrics);
  ~Gateway();  ///< stop() without patience
  Gateway(const Gateway&) = delete;
  Gateway& operator=(const Gateway&) = delete;

  std::uint16_t port() const;
  /// "http://127.0.0.1:8000"
  std::string url() const;

  /// Accepts nothing new, lets running answers finish for at most `patience`, then cancels them and
  /// closes their connections; joins the threads. Once; from any thread but the gateway's own.
  void stop(std::chrono::milliseconds patience);

 private:
  struct Impl;
  explicit Gateway(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
