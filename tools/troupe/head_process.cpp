#include "tools/troupe/head_process.h"

#include <cstdio>
#include <cstdlib>

#include "actors/head/open_model.h"
#include "runtime/host.h"
#include "runtime/limits.h"
#include "runtime/version.h"
#include "tools/troupe/signals.h"
#include "transport/fabric/fabric.h"

namespace troupe::cli {
namespace {

/// The API's address as others can use it: "any" is no place to go to.
std::string reachable(std::string url, const std::string& host) {
  const std::string shown = host.find(':') != std::string::npos ? "[" + host + "]" : host;
  if (host != "0.0.0.0" && host != "::") return url;
  const auto at = url.find(shown);
  // Which of this machine's addresses leads out; nothing is sent to that one.
  return at == url.npos ? url
                        : url.replace(at, shown.size(), local_address_towards("192.0.2.1", 9));
}

}  // namespace

void add_head_flags(CLI::App* command, HeadFlags& flags) {
  add_engine_flags(command, flags.engine);
  add_serving_flags(command, flags);
}

void add_serving_flags(CLI::App* command, HeadFlags& flags) {
  add_network_flags(command, flags.network);
  command
      ->add_option(
          "--listen", flags.listen,
          "Where workers and clients reach the head (default: 127.0.0.1:6379; port 0: any)")
      ->group("Network");
  command
      ->add_option("--min-devices", flags.min_devices,
                   "Devices to wait for before loading (default: 1; under `up`, all workers')")
      ->check(CLI::Range(1, 65536));
  const auto http = [&](const char* name, auto& value, const char* help) {
    return command->add_option(name, value, help)->group("HTTP");
  };
  http("--host", flags.host, "Address of the OpenAI API (default: 127.0.0.1)");
  http("--port", flags.port, "Its port (default: 8000; 0: any)")->check(CLI::Range(0, 65535));
  const auto list = [&](const char* name, auto& value, const char* help) {
    http(name, value, help)->allow_extra_args(false);
  };
  list("--api-key", flags.doors.api_keys,
       "A key that requests must bear; may be repeated (also: $TROUPE_API_KEY)");
  list("--allowed-host", flags.doors.sites.hosts,
       "A name by which clients reach the API, besides addresses, localhost and this machine's "
       "name; may be repeated");
  list("--allowed-origin", flags.doors.sites.origins,
       "A web site whose pages may use the API, such as https://chat.example.com, or '*' for all; "
       "may be repeated");
  command
      ->add_flag("--metrics-without-key", flags.doors.metrics_without_key,
                 "Let /metrics be read without an API key")
      ->group("HTTP");
  http("--tls-cert", flags.tls_cert, "PEM certificate chain, to serve HTTPS");
  http("--tls-key", flags.tls_key, "Its PEM key");
}

Result<std::unique_ptr<HeadProcess>> HeadProcess::start(const CommonOptions& common,
                                                        const HeadFlags& flags, int min_devices) {
  auto engine = resolve(flags.engine);
  if (!engine.ok()) return engine.error();
  engine->min_devices = flags.min_devices > 0 ? flags.min_devices : min_devices;
  if (auto kind = transport::parse_fabric_kind(flags.network.fabric); !kind.ok())
    return kind.error();
  auto listen = parse_host_port(flags.listen);
  if (!listen.ok()) return invalid_argument("--listen: " + listen.error().message);
  for (const auto& key : flags.doors.api_keys)
    if (key.empty()) return invalid_argument("--api-key must not be empty.");
  auto checkpoint = open_model(*engine);
  if (!checkpoint.ok()) return checkpoint.error();
  // The state folder is touched once all is known to be right.
  auto files = ClusterFiles::open(common.state_dir);
  if (!files.ok()) return files.error();

  std::unique_ptr<HeadProcess> process(new HeadProcess(std::move(*files)));
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  process->caf_ = std::move(*caf);
  process->host_ = std::make_unique<CafHost>(process->caf_->system(), process->post_);

  HeadOptions options;
  options.version = kVersion;
  options.engine = *engine;
  options.checkpoint = std::move(*checkpoint);
  options.cluster_id = process->files_.cluster_id;
  options.incarnation = process->files_.incarnation;
  options.next_node = process->files_.next_node;
  options.keeper = &process->files_;
  options.listen = *listen;
  options.credentials = process->files_.credentials.head;
  options.join_line = [p = process.get()](const HostPort& at) -> Result<std::string> {
    p->control_ = at;
    if (const Status written = p->files_.write_join(at); !written.ok()) return written.error();
    return "troupe worker --head " + to_string(at) + " --join " + p->files_.join_path();
  };
  GatewayOptions gateway;
  gateway.host = flags.host;
  gateway.port = static_cast<std::uint16_t>(flags.port);
  gateway.doors = flags.doors;
  if (const char* key = std::getenv("TROUPE_API_KEY"); key && *key)
    gateway.doors.api_keys.push_back(key);
  gateway.tls_cert = flags.tls_cert;
  gateway.tls_key = flags.tls_key;
  options.gateway = std::move(gateway);

  auto head = HeadNode::start(*process->host_, std::move(options));
  if (!head.ok()) return head.error();
  process->head_ = std::move(*head);
  process->watcher_ = std::thread([p = process.get()] {
    while (!p->closing_ && !p->head_->wait(std::chrono::seconds(1))) {
    }
    if (p->closing_) return;
    p->ended_ = true;
    Signals::nudge();
  });
  return process;
}

HeadProcess::~HeadProcess() {
  if (head_ && watcher_.joinable()) {
    closing_ = true;
    head_->stop("The head is being stopped.");
    head_->wait(limits::kStopDeadline);
    watcher_.join();
  }
  head_.reset();
}

std::string ready_message(const std::string& http_url, Duration took, const CommonOptions& common,
                          const HeadFlags& flags) {
  const std::string url = reachable(http_url, flags.host);
  const char* variable = std::getenv("TROUPE_API_KEY");
  std::string curl = "curl";
  if (!flags.tls_cert.empty()) curl += " --insecure";  // its issuer may be unknown to curl
  if (variable && *variable)
    curl += " -H \"Authorization: Bearer $TROUPE_API_KEY\"";
  else if (!flags.doors.api_keys.empty())
    curl += " -H 'Authorization: Bearer YOUR-KEY'";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", std::chrono::duration<double>(took).count());
  const std::string state =
      common.state_dir_given ? " --state-dir '" + common.state_dir + "'" : std::string();
  return "Ready after " + std::string(seconds) + " s: " + url +
         "/v1 serves the OpenAI API.\n"
         "  Look at it: " + url + "/ in a browser, or run: " + common.program + " top" + state +
         "\n"
         "  " + curl + " " + url +
         "/v1/chat/completions -H 'Content-Type: application/json' \\\n"
         "    -d '{\"messages\": [{\"role\": \"user\", \"content\": \"What is brandy?\"}]}'\n";
}

}  // namespace troupe::cli
