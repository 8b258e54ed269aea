#include "tools/troupe/head_process.h"

#include <cstdio>
#include <cstdlib>

#include "actors/control/head_link.h"
#include "actors/head/head_crashes.h"
#include "actors/head/journal_folder.h"
#include "actors/head/open_model.h"
#include "actors/supervisor/service.h"
#include "runtime/limits.h"
#include "runtime/log.h"
#include "runtime/version.h"
#include "tools/troupe/crash_handler.h"
#include "tools/troupe/lifetime.h"
#include "tools/troupe/own_address.h"
#include "tools/troupe/pull/hub_cache.h"
#include "tools/troupe/signals.h"
#include "transport/fabric/fabric.h"

namespace troupe::cli {
namespace {

/// The API's address as others can use it: "any" is no place to go to.
std::string reachable(std::string url, const std::string& host) {
  const std::string shown = host.find(':') != std::string::npos ? "[" + host + "]" : host;
  if (host != "0.0.0.0" && host != "::") return url;
  const auto at = url.find(shown);
  if (at == url.npos) return url;
  const std::string own = own_address();
  return url.replace(at, shown.size(), own.find(':') == own.npos ? own : "[" + own + "]");
}

/// Neither a tokenizer nor a chat template must be there, and a template may fail.
void warn_of_what_lacks(const ModelFrontend& frontend) {
  const auto& chat = frontend.chat_format();
  if (!frontend.tokenizer())
    logger().warn(
        "{} has no tokenizer (tokenizer.json, tiktoken.model; a tokenizer.model alone is not "
        "read): it is served with prompts and answers of token ids only.",
        frontend.served_model_name());
  else if (!chat.ok())
    logger().warn("{} is served for completions only, for it cannot chat: {}.",
                  frontend.served_model_name(), chat.error().message);
  else if (const auto tried = chat->render(std::vector<ChatMessage>{{"user", "x"}}, {}); !tried)
    logger().warn("The chat template of {} fails for a plain question, and so will chats: {}.",
                  frontend.served_model_name(), tried.error().message);
}

/// A request that this model can answer: the end of its URL, and its body.
std::pair<const char*, const char*> example_of(const ModelFrontend& frontend) {
  if (!frontend.tokenizer())
    return {"completions", R"({"prompt": [1, 2, 3], "max_tokens": 16, "return_token_ids": true})"};
  if (!frontend.chat_format().ok())
    return {"completions", R"({"prompt": "Once upon a time", "max_tokens": 16})"};
  return {"chat/completions", R"({"messages": [{"role": "user", "content": "What is brandy?"}]})"};
}

Api::Doors doors_of(const HeadFlags& flags) {
  Api::Doors doors = flags.doors;
  if (const char* key = std::getenv("TROUPE_API_KEY"); key && *key) doors.api_keys.push_back(key);
  return doors;
}

}  // namespace

void add_head_flags(Command& command, HeadFlags& flags) {
  add_engine_flags(command, flags.engine);
  add_serving_flags(command, flags);
}

void add_serving_flags(Command& command, HeadFlags& flags) {
  add_network_flags(command, flags.network);
  add_flags(command, "Network",
            {{"--listen", &flags.listen,
              "Where workers and clients reach the head (default: 127.0.0.1:6379; port 0: any)"}});
  command.flags.push_back(
      {.name = "--min-devices",
       .target = &flags.min_devices,
       .help = "Devices to wait for before loading (default: 1; under `up`, all workers')",
       .range = Range{1, 65536}});
  add_flags(command, "Network",
            {{"--certificate-lifetime", &flags.certificate_lifetime,
              "How long certificates are good that the head signs for itself and for workers "
              "with a token: 30d, 12h (default: 365d). Each is renewed in time"}});
  add_flags(command, "Recovery",
            {{.name = "--keep-for",
              .target = &flags.keep_for_s,
              .help = "Seconds for which workers keep their weights and what they served when the "
                      "head is gone (default: 60); after it they let go of it, and seek it on",
              .range = Range{0, static_cast<double>(limits::kKeepForMax.count())}},
             {"--no-journal", &flags.no_journal,
              "Write nothing of requests to the state folder: those that are accepted are lost "
              "with the head, and nobody can be its standby. Answers that an earlier life kept "
              "are deleted; with requests of it that have not ended the head does not start"}});
  add_flags(
      command, "HTTP",
      {{"--host", &flags.host, "Address of the OpenAI API (default: 127.0.0.1)"},
       {.name = "--port",
        .target = &flags.port,
        .help = "Its port (default: 8000; 0: any)",
        .range = Range{0, 65535}},
       {.name = "--api-key",
        .target = &flags.doors.api_keys,
        .help = "KEY[:weight=N,max-running=N]: a key that requests must bear; may be repeated "
                "(also: $TROUPE_API_KEY). A key of weight 2 gets twice as much as one of 1, the "
                "default, when both want all; more than max-running requests of a key wait",
        .one_value_each = true},
       {.name = "--allowed-host",
        .target = &flags.doors.sites.hosts,
        .help = "A name by which clients reach the API, besides addresses, localhost and this "
                "machine's name; may be repeated",
        .one_value_each = true},
       {.name = "--allowed-origin",
        .target = &flags.doors.sites.origins,
        .help = "A web site whose pages may use the API, such as https://chat.example.com, or '*' "
                "for all; may be repeated",
        .one_value_each = true},
       {"--metrics-without-key", &flags.doors.metrics_without_key,
        "Let /metrics be read without an API key"},
       {"--expert-metrics", &flags.expert_metrics,
        "Have /metrics count the tokens of each expert: a series for every layer and expert, "
        "14,848 for DeepSeek-V3"},
       {"--tls-cert", &flags.tls_cert,
        "PEM certificate chain, to serve HTTPS; taken again when it changes"},
       {"--tls-key", &flags.tls_key, "Its PEM key"}});
}

void add_lone_head_flags(Command& command, HeadFlags& flags) {
  add_flags(command, "Recovery",
            {{"--keep-workers", &flags.keep_workers,
              "SIGTERM and Ctrl-C end this head alone: workers keep what they serve, and its next "
              "life goes on with every accepted request. `troupe stop` stops them all"},
             {"--standby-of", &flags.standby_of,
              "HOST:PORT of a head to follow: when it is gone, and more than half of the "
              "workers grant it, this one takes its place. Needs its credentials.pem in the "
              "state folder, and the same flags otherwise"}});
}

GatewayOptions gateway_options(const HeadFlags& flags) {
  GatewayOptions gateway;
  gateway.host = flags.host;
  gateway.port = static_cast<std::uint16_t>(flags.port);
  gateway.doors = doors_of(flags);
  gateway.expert_metrics = flags.expert_metrics;
  gateway.tls_cert = flags.tls_cert;
  gateway.tls_key = flags.tls_key;
  return gateway;
}

Result<HeadModel> open_head_model(const HeadFlags& flags, int min_devices, CheckpointUse use) {
  HeadModel model;
  auto engine = resolve(flags.engine);
  if (!engine.ok()) return engine.error();
  model.engine = std::move(*engine);
  model.engine.min_devices = flags.min_devices > 0 ? flags.min_devices : min_devices;
  if (auto kind = transport::parse_fabric_kind(flags.network.fabric); !kind.ok())
    return kind.error();
  if (auto listen = parse_host_port(flags.listen); !listen.ok())
    return invalid_argument("--listen: " + listen.error().message);
  if (auto lifetime = parse_certificate_lifetime(flags.certificate_lifetime); !lifetime.ok())
    return lifetime.error();
  if (const Status good = check(gateway_options(flags)); !good.ok()) return good.error();
  auto checkpoint = open_model(model.engine, use);
  if (!checkpoint.ok() && use == CheckpointUse::kHeaders) {
    const std::string& asked = flags.engine.options.model;
    const std::string folder = pull::model_folder(asked, pull::HubFolder::Part::kHead);
    if (folder != asked) {
      const std::string why = checkpoint.error().message;
      model.engine.model = folder;
      checkpoint = open_model(model.engine, use);
      if (checkpoint.ok())
        logger().info("Of {} the headers alone are used, which are in {}: {}", asked, folder, why);
    }
  }
  if (!checkpoint.ok()) return checkpoint.error();
  model.checkpoint = std::move(*checkpoint);
  auto frontend = ModelFrontend::load(model.engine);
  if (!frontend.ok()) return frontend.error();
  model.frontend = std::move(*frontend);
  warn_of_what_lacks(*model.frontend);
  return model;
}

HeadProcess::HeadProcess(ClusterFiles files, const std::string& state_dir, const HeadFlags& flags,
                         std::int64_t lifetime_s)
    : files_(std::make_shared<ClusterFiles>(std::move(files))),
      keeps_workers_(flags.keep_workers),
      desk_(files_->credentials(), state_dir, lifetime_s),
      asker_([this](const HostPort& at) {
        return make_tcp_link(caf_->system(), {at}, files_->credentials().worker);
      }) {}

/// False: the standby has become the head.
Result<bool> HeadProcess::may_go_on(const std::string& state_dir,
                                    const std::function<bool()>& interrupted) {
  constexpr auto kAskEvery = std::chrono::seconds(1);
  auto heard = std::make_shared<std::atomic<int>>(0);
  logger().info(
      "The standby at {} may have become the head: it is asked whether this one may go "
      "on. If it is gone for good, delete {}/standby-at.",
      files_->standby, state_dir);
  TimePoint ask_at = now();
  while (*heard == 0) {
    if (interrupted()) return cancelled("The head was told to end.");
    if (now() >= ask_at) {
      std::lock_guard lock(asking_);
      asker_.ask(files_->standby, files_->cluster_id, {},
                 [heard](StandbyAnswered answer) { *heard = answer.rules ? 2 : 1; });
      ask_at = now() + kAskEvery;
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (*heard == 2) return false;
  (void)files_->keep_standby("");  // or the next life asks again
  return true;
}

Result<HeadProcess::Start> HeadProcess::start(const CommonOptions& common, const HeadFlags& flags,
                                              const HeadModel& model, const Doubles& doubles,
                                              const std::function<bool()>& interrupted) {
  // The state folder is touched once all is known to be right.
  const std::int64_t lifetime_s = *parse_certificate_lifetime(flags.certificate_lifetime);
  auto files = ClusterFiles::open(common.state_dir, lifetime_s);
  if (!files.ok()) return files.error();

  std::unique_ptr<HeadProcess> process(
      new HeadProcess(std::move(*files), common.state_dir, flags, lifetime_s));
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  process->caf_ = std::move(*caf);
  process->host_ = std::make_unique<CafHost>(process->caf_->system(), process->post_);
  if (!process->files_->standby.empty()) {
    const auto go_on = process->may_go_on(common.state_dir, interrupted);
    if (!go_on.ok()) return go_on.error();
    if (!*go_on) return Start{nullptr, process->files_->standby};
  }

  HeadOptions options;
  options.version = kVersion;
  options.engine = model.engine;
  options.checkpoint = model.checkpoint;
  options.frontend = model.frontend;
  options.cluster_id = process->files_->cluster_id;
  options.incarnation = process->files_->incarnation;
  options.keep_for = std::chrono::seconds(flags.keep_for_s);
  options.next_node = process->files_->next_node;
  options.keeper = process->files_;
  if (flags.no_journal) {
    DiskFiles disk;
    const Status over = journal_folder::check_all_over(disk, process->files_->journal_path());
    if (!over.ok()) return over.error();
  } else {
    options.journal_folder = process->files_->journal_path();
  }
  options.listen = *parse_host_port(flags.listen);
  options.ask_standby = [p = process.get()](const AskStandby& ask, auto answered) {
    std::lock_guard lock(p->asking_);
    p->asker_.ask(ask.address, p->files_->cluster_id, p->files_->incarnation, std::move(answered));
  };
  options.credentials = process->files_->credentials().head;
  options.enrol = [&desk = process->desk_](DeskVisit visit,
                                           std::function<void(std::string)> reply) {
    desk.take(std::move(visit), std::move(reply));
  };
  options.join_line = [p = process.get()](const HostPort& at) -> Result<std::string> {
    p->control_ = at;
    if (const Status written = p->files_->write_join(at); !written.ok()) return written.error();
    return "troupe worker --head " + to_string(at) + " --join " + p->files_->join_path();
  };
  options.gateway = gateway_options(flags);
  if (doubles.change_head) doubles.change_head(options);
  if (!options.journal_folder.empty())
    write_down_crashes(head_crashes_path(options.journal_folder), options.incarnation);

  auto head = HeadNode::start(*process->host_, std::move(options));
  if (!head.ok()) return head.error();
  process->head_ = std::move(*head);
  if (const Status kept = process->keep_certificates(lifetime_s); !kept.ok()) return kept.error();
  if (flags.no_journal) process->files_->delete_journal();
  process->watcher_ = std::thread([p = process.get()] {
    while (!p->closing_ && !p->head_->wait(std::chrono::seconds(1))) {
    }
    if (p->closing_) return;
    p->ended_ = true;
    Signals::nudge();
  });
  return Start{std::move(process), ""};
}

Status HeadProcess::keep_certificates(std::int64_t lifetime_s) {
  certificate_.emplace(*files_, lifetime_s, [this](const ClusterCredentials& next) {
    const Status used = head_->use(next.head);
    if (used.ok()) desk_.use(next);
    return used;
  });
  auto watch = CertificateWatch::start(
      certificate_->options([this](const std::string& text) { head_->note("certificate", text); }),
      *certificate_);
  if (!watch.ok()) return watch.error();
  certificate_watch_ = std::move(*watch);
  return {};
}

/// One that is deposed has no workers to tell, and a cluster that is stopping is stopped.
void HeadProcess::end_head() {
  const bool over = ended_ || !head_->deposed_by().empty();
  if (!over && keeps_workers_ && head_->state() != to_string(ClusterState::kStopping)) {
    logger().info("This head ends alone: its workers keep what they serve, and seek the next one.");
    return head_->leave();
  }
  if (!over) head_->stop("The head is being stopped.");
  head_->wait(limits::kStopDeadline);
}

HeadProcess::~HeadProcess() {
  certificate_watch_.reset();
  if (head_ && watcher_.joinable()) {
    closing_ = true;
    end_head();
    watcher_.join();
  }
  {
    std::lock_guard lock(asking_);
    asker_.end();
  }
  head_.reset();
  files_->let_go();
  write_down_crashes("", {});
}

std::string ready_message(const HeadNode& head, Duration took, const CommonOptions& common,
                          const HeadFlags& flags) {
  const std::string url = reachable(head.http_url(), flags.host);
  const auto [path, body] = example_of(head.frontend());
  const char* variable = std::getenv("TROUPE_API_KEY");
  std::string curl = "curl";
  if (!flags.tls_cert.empty()) curl += " --insecure";  // its issuer may be unknown to curl
  const bool shown = variable && *variable && ApiKeys::key_of(variable) == variable;
  if (shown)
    curl += " -H \"Authorization: Bearer $TROUPE_API_KEY\"";
  else if (!flags.doors.api_keys.empty() || (variable && *variable))
    curl += " -H 'Authorization: Bearer YOUR-KEY'";
  char seconds[32];
  std::snprintf(seconds, sizeof seconds, "%.1f", std::chrono::duration<double>(took).count());
  const std::string state =
      common.state_dir_given ? " --state-dir '" + common.state_dir + "'" : std::string();
  return "Ready after " + std::string(seconds) + " s: " + url +
         "/v1 serves the OpenAI API.\n"
         "  Look at it: " +
         url + "/ in a browser, or run: " + common.program + " top" + state +
         "\n"
         "  " +
         curl + " " + url + "/v1/" + path + " -H 'Content-Type: application/json' \\\n    -d '" +
         body + "'\n";
}

}  // namespace troupe::cli
