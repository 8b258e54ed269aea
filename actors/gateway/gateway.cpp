#include "actors/gateway/gateway.h"

#include "actors/gateway/server.h"
#include "actors/gateway/session.h"

#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/co_spawn.hpp>
#include <boost/asio/executor_work_guard.hpp>
#include <future>
#include <thread>

#include "actors/gateway/http_text.h"
#include "actors/gateway/https_certificate.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// Descriptors that the rest of the process needs: checkpoints, lanes, logs.
constexpr std::size_t kDescriptorsKept = 256;
/// Connections that are told one after another that there are too many; more are just closed.
constexpr std::size_t kRefusalsMax = 64;

/// No more connections than descriptors allow, so that accept() does not run dry.
std::size_t affordable_connections(std::size_t wanted) {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return wanted;
  const auto descriptors = static_cast<std::size_t>(limit.rlim_cur);
  const std::size_t affordable = std::max(descriptors, 2 * kDescriptorsKept) - kDescriptorsKept;
  if (affordable < wanted) {
    logger().warn("The gateway takes {} connections, not {}: raise the limit of open files ({}).",
                  affordable, wanted, descriptors);
  }
  return std::min(wanted, affordable);
}

/// Says 503 to a connection that is too many, and gives it a moment to read it.
asio::awaitable<void> refuse(Server& server, tcp::socket socket) {
  ++server.refusals;
  const std::string text = [] {
    const HttpReply reply = error_reply(too_many_connections_error());
    return response_head(reply, BodyEnd::kLength, false) + reply.body;
  }();
  error_code ec;
  socket.non_blocking(true, ec);
  socket.write_some(asio::buffer(text), ec);
  socket.shutdown(tcp::socket::shutdown_send, ec);
  asio::steady_timer timer(server.io, std::chrono::milliseconds(250));
  auto token = asio::redirect_error(asio::use_awaitable, ec);
  co_await timer.async_wait(token);
  char ignored[4096];  // Unread bytes would turn the close into a reset.
  while (socket.read_some(asio::buffer(ignored), ec) > 0) {
  }
  --server.refusals;
}

template <class Session>
void run_session(Server& server, std::shared_ptr<Session> session) {
  Session& running = *session;
  const auto ended = [session = std::move(session)](std::exception_ptr failure) {
    if (!failure) return;
    session->on_abort();
    try {
      std::rethrow_exception(failure);
    } catch (const std::exception& e) {
      logger().error("An HTTP connection was closed because of an internal error: {}", e.what());
    }
  };
  asio::co_spawn(server.io, running.run(), ended);
}

void serve(Server& server, tcp::socket socket) {
  error_code ignored;
  socket.set_option(tcp::no_delay(true), ignored);
  if (server.tls) {
    using TlsStream = asio::ssl::stream<tcp::socket>;
    run_session(server,
                std::make_shared<Session<TlsStream>>(server, std::move(socket), *server.tls));
  } else {
    run_session(server, std::make_shared<Session<tcp::socket>>(server, std::move(socket)));
  }
}

/// Asio's own accept() leaves the socket to every program that this one starts.
void accept(tcp::acceptor& acceptor, tcp::socket& socket, error_code& ec) {
  const auto protocol = acceptor.local_endpoint(ec).protocol();
  if (ec) return;
  const int fd = ::accept4(acceptor.native_handle(), nullptr, nullptr, SOCK_CLOEXEC);
  if (fd < 0)
    ec = error_code(errno, boost::system::system_category());
  else
    socket.assign(protocol, fd, ec);
  if (ec && fd >= 0) ::close(fd);
}

asio::awaitable<void> accept_loop(Server& server, tcp::acceptor& acceptor) {
  asio::steady_timer pause(server.io);
  while (acceptor.is_open()) {
    error_code ec;
    auto token = asio::redirect_error(asio::use_awaitable, ec);
    co_await acceptor.async_wait(tcp::acceptor::wait_read, token);
    if (!acceptor.is_open()) break;
    tcp::socket socket(server.io);
    if (!ec) accept(acceptor, socket, ec);
    if (ec == asio::error::would_block || ec == asio::error::connection_aborted) continue;
    if (ec) {  // Out of descriptors or memory: the connections there are go on.
      logger().warn("The gateway cannot accept a connection: {}", ec.message());
      pause.expires_after(std::chrono::milliseconds(100));
      co_await pause.async_wait(token);
    } else if (server.connections.size() < server.options.connections_max) {
      serve(server, std::move(socket));
    } else if (!server.tls && server.refusals < kRefusalsMax) {
      auto refusal = refuse(server, std::move(socket));
      asio::co_spawn(server.io, std::move(refusal), [](std::exception_ptr) {});
    }
  }
}

/// The context is shared: connections that have begun with it keep it.
asio::ssl::context made_of(const HttpsCertificate::Context& context) {
  SSL_CTX_up_ref(context.get());
  return asio::ssl::context(context.get());
}

Status set_up_tls(Server& server, std::unique_ptr<HttpsCertificate>& https) {
  const GatewayOptions& options = server.options;
  if (options.tls_cert.empty() && options.tls_key.empty()) return {};
  auto opened = HttpsCertificate::open(options.tls_cert, options.tls_key);
  if (!opened.ok()) return opened.error();
  https = std::move(*opened);
  server.tls = made_of(https->context());
  https->on_use([&server](HttpsCertificate::Context next) {
    asio::post(server.io, [&server, next = std::move(next)] { server.tls = made_of(next); });
  });
  return {};
}

Status listen(Server& server, tcp::acceptor& acceptor) {
  const std::string& host = server.options.host;
  const std::string port = std::to_string(server.options.port);
  error_code ec;
  tcp::resolver resolver(server.io);
  const auto found = resolver.resolve(host, port, tcp::resolver::passive, ec);
  if (ec || found.empty()) {
    return unavailable("The address '" + host + "' of --host cannot be found: " + ec.message() +
                       "; name an address of this machine.");
  }
  const tcp::endpoint endpoint = found.begin()->endpoint();
  const int fd =
      ::socket(endpoint.protocol().family(), SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0)
    ec = error_code(errno, boost::system::system_category());
  else
    acceptor.assign(endpoint.protocol(), fd, ec);
  if (!ec) acceptor.set_option(tcp::acceptor::reuse_address(true), ec);
  if (!ec) acceptor.bind(endpoint, ec);
  if (!ec) acceptor.listen(asio::socket_base::max_listen_connections, ec);
  if (!ec) return {};
  return unavailable("The gateway cannot listen on " + host + ":" + port + " (" + ec.message() +
                     "); choose another --host or --port.");
}

}  // namespace

struct Gateway::Impl {
  Impl(GatewayOptions options, GenerationService& service, NamedRequests& requests,
       const ClusterView& cluster, const GatewayModel& model, Metrics& metrics)
      : server(std::move(options), service, requests, cluster, model, metrics),
        acceptor(server.io) {}

  Server server;
  tcp::acceptor acceptor;
  std::uint16_t port = 0;
  std::thread thread;
  std::future<void> idle;  // Set when the I/O thread has nothing left to do.
  std::unique_ptr<HttpsCertificate> https;  // Null: plain HTTP.
  std::unique_ptr<CertificateWatch> https_watch;
  bool stopped = false;
};

Gateway::Gateway(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

Status check(const GatewayOptions& options) {
  // It would be every address of the machine.
  if (options.host.empty())
    return invalid_argument(
        "--host must not be empty: 127.0.0.1 is for this machine alone, 0.0.0.0 for all.");
  if (const Status keys = ApiKeys::check(options.doors.api_keys); !keys.ok()) return keys;
  return SiteRules::check(options.doors.sites);
}

Result<std::unique_ptr<Gateway>> Gateway::start(GatewayOptions options, GenerationService& service,
                                                NamedRequests& requests, ClusterView& cluster,
                                                const GatewayModel& model, Metrics& metrics) {
  if (options.threads < 1 || options.threads > limits::kThreadsMax) {
    return invalid_argument("The gateway needs 1 to " + std::to_string(limits::kThreadsMax) +
                            " threads.");
  }
  if (Status good = check(options); !good) return good.error();
  options.doors.sites.hosts.push_back(options.host);
  options.connections_max = affordable_connections(options.connections_max);
  auto impl =
      std::make_unique<Impl>(std::move(options), service, requests, cluster, model, metrics);
  if (Status tls = set_up_tls(impl->server, impl->https); !tls) return tls.error();
  if (Status listening = listen(impl->server, impl->acceptor); !listening) return listening.error();
  error_code ec;
  impl->port = impl->acceptor.local_endpoint(ec).port();

  asio::co_spawn(impl->server.io, accept_loop(impl->server, impl->acceptor),
                 [](std::exception_ptr) {});
  std::packaged_task<void()> run([&io = impl->server.io] { io.run(); });
  impl->idle = run.get_future();
  impl->thread = std::thread(std::move(run));
  std::unique_ptr<Gateway> gateway(new Gateway(std::move(impl)));
  if (HttpsCertificate* https = gateway->impl_->https.get()) {
    auto watch = CertificateWatch::start(https->options(), *https);
    if (!watch.ok()) return watch.error();
    gateway->impl_->https_watch = std::move(*watch);
  }
  return gateway;
}

Gateway::~Gateway() { stop(std::chrono::milliseconds(0)); }

std::uint16_t Gateway::port() const { return impl_->port; }

std::string Gateway::url() const {
  const std::string& host = impl_->server.options.host;
  const bool v6 = host.find(':') != std::string::npos;
  return (impl_->https ? "https://" : "http://") + (v6 ? "[" + host + "]" : host) + ":" +
         std::to_string(impl_->port);
}

void Gateway::stop(std::chrono::milliseconds patience) {
  if (std::exchange(impl_->stopped, true)) return;
  impl_->https_watch.reset();
  Server& server = impl_->server;
  asio::post(server.io, [this, &server] {
    server.stopping = true;
    error_code ignored;
    impl_->acceptor.close(ignored);
    for (Connection* connection : server.connections) connection->on_stop();
  });
  if (impl_->idle.wait_for(patience) != std::future_status::ready) {
    asio::post(server.io, [&server] {
      for (Connection* connection : server.connections) connection->on_abort();
    });
  }
  impl_->thread.join();
  server.workers.join();
  server.big_worker.join();
  server.grammar_worker.join();
  server.big_grammar_worker.join();
}

}  // namespace troupe
