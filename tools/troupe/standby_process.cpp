#include "tools/troupe/standby_process.h"

#include <sys/random.h>

#include <chrono>
#include <filesystem>
#include <utility>

#include "actors/head/journal_folder.h"
#include "actors/head/open_model.h"
#include "actors/supervisor/options.h"
#include "runtime/version.h"
#include "tools/troupe/lifetime.h"

namespace troupe::cli {
namespace {

std::uint64_t random_number() {
  std::uint64_t number = 0;
  while (getrandom(&number, sizeof number, 0) != sizeof number) {
  }
  return number;
}

std::int64_t unix_ms() {
  return std::chrono::duration_cast<std::chrono::milliseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

bool is_loopback(const std::string& host) {
  return host.starts_with("127.") || host == "localhost" || host == "::1";
}

/// Above the newest head's, and above that of each life of this folder.
Incarnation term_above(Incarnation newest, Incarnation own) {
  return Incarnation{first_incarnation(std::max(newest, own).value, unix_ms() * 1000)};
}

}  // namespace

Result<std::unique_ptr<StandbyProcess>> StandbyProcess::start(const std::string& state_dir,
                                                              const HeadFlags& flags,
                                                              const HeadModel& model,
                                                              const std::string& head) {
  auto address = parse_host_port(head);
  if (!address.ok()) return invalid_argument("--standby-of: " + address.error().message);
  const HostPort own = *parse_host_port(flags.listen);
  if (is_loopback(own.host) && !is_loopback(address->host))
    return invalid_argument("--listen: workers of the head at " + head +
                            " cannot reach this standby at " + flags.listen +
                            "; give an address of the network.");
  const std::int64_t lifetime_s = *parse_certificate_lifetime(flags.certificate_lifetime);
  auto files = ClusterFiles::open(state_dir, lifetime_s);
  if (!files.ok()) return files.error();
  auto earlier = StandbyFiles::earlier(state_dir);
  if (!earlier.ok()) return earlier.error();
  std::unique_ptr<StandbyProcess> process(new StandbyProcess(
      std::move(*files),
      StandbyFiles(state_dir, KnownFile::model(model.checkpoint->hash(), model.engine.model))));
  auto caf = CafSystem::make();
  if (!caf.ok()) return caf.error();
  process->caf_ = std::move(*caf);
  process->host_ = std::make_unique<CafHost>(process->caf_->system(), process->post_);

  const HostPort listen = *parse_host_port(flags.listen);
  StandbyOptions options;
  options.listen = listen;
  options.credentials = process->files_.credentials().head;
  options.journal_folder = process->files_.journal_path();
  const EngineOptions engine = resolved(model.engine, *model.frontend);
  options.journal_model = journal_model(engine, *model.checkpoint);
  options.random = random_number;
  options.keeper = &process->kept_;
  auto& machine = options.machine;
  machine.version = kVersion;
  machine.checkpoint_hash = model.checkpoint->hash();
  machine.engine = engine;
  if (listen.port != 0) machine.address = to_string(found_at(listen));
  if (*earlier) machine.earlier = **earlier;
  machine.earlier.head_address = to_string(*address);
  // What cannot be read is told when it takes over.
  DiskFiles disk;
  const auto next_file = journal_folder::next_file(disk, options.journal_folder);
  if (!next_file.ok()) return next_file.error();
  machine.journal_file = *next_file;
  machine.random = random_number;
  machine.next_term = [own = process->files_.incarnation](Incarnation newest) {
    return term_above(newest, own);
  };
  auto link =
      make_tcp_link(process->caf_->system(), {*address}, process->files_.credentials().worker);
  if (!link.ok()) return link.error();
  auto node = StandbyNode::start(*process->host_, std::move(options), std::move(*link));
  if (!node.ok()) return node.error();
  process->node_ = std::move(*node);
  // Commands on this machine ask the standby first, then the head.
  if (const Status written =
          process->files_.write_join({listen.host, process->node_->port()}, to_string(*address));
      !written.ok())
    return written.error();
  process->certificate_.emplace(
      process->files_, lifetime_s,
      [n = process->node_.get()](const ClusterCredentials& c) { return n->use(c.head, c.worker); });
  auto watch = CertificateWatch::start(process->certificate_->options(), *process->certificate_);
  if (!watch.ok()) return watch.error();
  process->certificate_watch_ = std::move(*watch);
  process->door_ = std::make_unique<StandbyDoor>(
      to_string(*address), kVersion, [n = process->node_.get()] { return n->message(); });
  process->gateway_model_ = make_gateway_model(model.frontend);
  process->metrics_ = std::make_unique<Metrics>(model.frontend->served_model_name());
  auto gateway = Gateway::start(gateway_options(flags), *process->door_, *process->door_,
                                *process->door_, *process->gateway_model_, *process->metrics_);
  if (!gateway.ok()) return gateway.error();
  process->gateway_ = std::move(*gateway);
  return process;
}

StandbyProcess::~StandbyProcess() { close(); }

void StandbyProcess::close() {
  certificate_watch_.reset();
  gateway_.reset();
  node_.reset();
}

StandbyNode::Outcome StandbyProcess::wait(const std::function<bool()>& interrupted) {
  constexpr auto kLook = std::chrono::milliseconds(50);
  std::optional<StandbyNode::Outcome> outcome;
  while (!(outcome = node_->wait(kLook)))
    if (interrupted()) return {false, 0, ""};
  if (!outcome->rules) {
    close();
    if (outcome->code == 0) kept_.forget();
    return *outcome;
  }
  const FollowState known = node_->known();
  close();  // what it was told is on the disk from now on
  if (const Status inherited = kept_.inherit(known); !inherited.ok())
    return {false, 1, inherited.error().message};
  return *outcome;
}

}  // namespace troupe::cli
