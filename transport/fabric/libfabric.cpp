#include "transport/fabric/libfabric.h"

#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <utility>

#include "transport/fabric/port.h"

namespace troupe::transport {
namespace {

constexpr const char* kLoopback = "127.0.0.1";

}  // namespace

void Waker::wake() {
  if (!asleep.exchange(false)) return;
  const std::uint64_t one = 1;
  (void)!::write(event.get(), &one, sizeof(one));
}

Result<std::unique_ptr<Fabric>> make_libfabric(const FabricOptions& options, FabricEvents& events) {
  return LibfabricFabric::make(options, events);
}

Result<std::unique_ptr<Fabric>> LibfabricFabric::make(const FabricOptions& options,
                                                      FabricEvents& events) {
  std::unique_ptr<LibfabricFabric> fabric(new LibfabricFabric(options, events));
  if (auto status = fabric->open(); !status.ok()) return status.error();
  return std::unique_ptr<Fabric>(std::move(fabric));
}

Status LibfabricFabric::open() {
  auto provider = open_provider(options_);
  if (!provider) return provider.error();
  provider_ = std::move(*provider);
  port_.provider = provider_->name;
  port_.provider_why = provider_->why;
  port_.providers = usable_providers(provider_->host);
  port_.adapter = adapter_of(provider_->info->nic);
  way_ = {options_.host, options_.host};
  epoll_ = Descriptor(epoll_create1(EPOLL_CLOEXEC));
  waker_->event = Descriptor(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!epoll_ || !waker_->event) return resource_exhausted("There are no file descriptors left.");
  auto gate =
      Gate::make(provider_->fixed ? std::optional(provider_->host) : std::nullopt, epoll_.get());
  if (!gate) return gate.error();
  gate_ = std::move(*gate);
  budget_ = std::make_shared<ReceiveBudget>(options_.received_bytes_max, [waker = waker_] {
    waker->room = true;
    waker->wake();
  });
  // Edge-triggered: the provider net leaves its wait descriptors readable for good, and
  // fi_trywait does not reset them.
  for (const int fd : {waker_->event.get(), provider_->eq_fd, provider_->cq_fd}) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLET;
    event.data.fd = fd;
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
      return internal_error("A descriptor of libfabric cannot be watched.");
    }
  }
  // Signals are for the program's own threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  thread_ = std::thread([this] { run(); });
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread_.native_handle(), "fabric");
  return {};
}

LibfabricFabric::~LibfabricFabric() {
  if (!thread_.joinable()) return;
  command({Command::Kind::kStop, nullptr});
  thread_.join();
}

PeerKey LibfabricFabric::self() const {
  std::lock_guard lock(mutex_);
  return self_;
}

void LibfabricFabric::identify(PeerKey self) {
  std::vector<PeerKey> known;
  {
    std::lock_guard lock(mutex_);
    self_ = self;
    fences_.clear();  // of what this node was; nobody has a token for what it is now
    for (const auto& [node, peer] : peers_) known.push_back(peer->key);
  }
  for (const PeerKey& peer : known) forget(peer, false);
}

void LibfabricFabric::come_by(const ControlWay& way) {
  std::lock_guard lock(mutex_);
  way_ = way;
}

ControlWay LibfabricFabric::way() const {
  std::lock_guard lock(mutex_);
  return way_;
}

BulkAddress LibfabricFabric::own_address() const {
  return {provider_->name, provider_->fixed ? provider_->host.host() : advertised_host(way()),
          gate_->port()};
}

std::string LibfabricFabric::address() const { return to_string(own_address()); }

std::string LibfabricFabric::describe() const {
  const BulkAddress own = own_address();
  const std::string port = std::to_string(own.port);
  const std::string at = own.host.empty() ? "the head's machine, port " + port
                                          : to_string(own).substr(own.provider.size() + 1);
  return provider_->name + " at " + at + " (" + provider_->why + ")";
}

FabricPort LibfabricFabric::port() const {
  FabricPort port = port_;
  describe_interfaces(provider_->fixed ? provider_->host.host() : way().own,
                      options_.bind_interface, port);
  return port;
}

void LibfabricFabric::command(Command command) {
  {
    std::lock_guard lock(commands_mutex_);
    commands_.push_back(std::move(command));
    commands_waiting_ = true;
  }
  waker_->wake();
}

Status LibfabricFabric::add(std::shared_ptr<Peer> peer) {
  const PeerKey key = peer->key;
  std::shared_ptr<Peer> older;
  {
    std::lock_guard lock(mutex_);
    const auto fence = fences_.find(key.node);
    if (fence != fences_.end() && key.incarnation <= fence->second) {
      return refused(to_string(key) + " was given up; a node comes back with a new incarnation.");
    }
    auto& known = peers_[key.node];
    if (known && known->key.incarnation > key.incarnation) {
      return refused("A newer life than " + to_string(key) + " is known.");
    }
    older = std::exchange(known, peer);
    if (older) older->forgotten = true;
  }
  if (older) command({Command::Kind::kForget, std::move(older)});
  command({Command::Kind::kStart, std::move(peer)});
  return {};
}

Result<std::shared_ptr<Peer>> LibfabricFabric::make_peer(PeerKey key, const std::string& text,
                                                         const FabricToken& token,
                                                         bool calls) const {
  if (key.node == self().node)
    return invalid_argument(to_string(key) + " is this node, which is no peer of its own.");
  auto address = parse_bulk_address(text);
  if (!address) return address.error();
  if (address->provider != provider_->name)
    return invalid_argument("Its fabric is '" + address->provider + "' and this node's is '" +
                            provider_->name +
                            "'; start all workers with the same --fabric, and none by loopback "
                            "where there are devices for RDMA.");
  auto peer = std::make_shared<Peer>();
  peer->key = key;
  peer->token = token;
  peer->calls = calls;
  peer->listen_at = listen_at(*address);
  const auto host = reached_host(*address, way());
  if (!host) return calls ? Result<std::shared_ptr<Peer>>(host.error()) : peer;
  auto at = parse_socket_address(*host, address->port);
  if (!at) return at.error();
  peer->address = *at;
  const SocketAddress& own = provider_->host;
  if (!provider_->fixed) return peer;
  if (own.storage.ss_family != at->storage.ss_family)
    return invalid_argument("It is at " + at->text() + " and this node at " + own.host() +
                            "; use one address family everywhere.");
  if (is_loopback(own.host()) && !is_loopback(*host))
    peer->why = {"this node's bulk lane is at " + own.host() +
                     ", which leads nowhere else: name the interface towards the other workers "
                     "with --bind-interface, or none",
                 LinkFault::kOwnEnd};
  return peer;
}

/// Where such a peer finds this node. On the head's machine it may be any address of it, unless the
/// peer is there, too.
SocketAddress LibfabricFabric::listen_at(const BulkAddress& peer) const {
  if (provider_->fixed) return provider_->host;
  const std::string own = way().own;
  if (!is_loopback(own)) {
    if (auto at = parse_socket_address(own, 0); at.ok()) return *at;
  } else if (peer.host.empty()) {
    return *parse_socket_address(kLoopback, 0);
  }
  return gate_->address();
}

Status LibfabricFabric::expect(PeerKey key, const std::string& address, const FabricToken& token) {
  auto peer = make_peer(key, address, token, false);
  return peer.ok() ? add(std::move(*peer)) : peer.error();
}

Status LibfabricFabric::connect(PeerKey key, const std::string& address, const FabricToken& token) {
  auto peer = make_peer(key, address, token, true);
  return peer.ok() ? add(std::move(*peer)) : peer.error();
}

void LibfabricFabric::forget(PeerKey key, bool fence) {
  std::shared_ptr<Peer> peer;
  {
    std::lock_guard lock(mutex_);
    if (fence) {
      auto& fenced = fences_[key.node];
      fenced = std::max(fenced, key.incarnation);
    }
    const auto known = peers_.find(key.node);
    if (known == peers_.end() || known->second->key.incarnation > key.incarnation) return;
    if (!fence && known->second->key != key) return;
    peer = std::move(known->second);
    peers_.erase(known);
    peer->forgotten = true;
  }
  command({Command::Kind::kForget, std::move(peer)});
}

Status LibfabricFabric::send(PeerKey to, Frame frame) {
  if (frame.header.bytes.size() > limits::kBulkHeaderBytesMax ||
      frame.payload.bytes.size() > limits::kBulkPayloadBytesMax) {
    return resource_exhausted("A frame for " + to_string(to) + " is too large to be sent.");
  }
  if (frame.header.memory == MemoryKind::kDevice || frame.payload.memory == MemoryKind::kDevice) {
    return invalid_argument("A frame for " + to_string(to) +
                            " is in device memory; copy it to the host first.");
  }
  const std::shared_ptr<Peer> peer = find_up(to);
  if (!peer) return unavailable(to_string(to) + " is not connected.");
  const std::size_t bytes = frame.bytes();
  // That a step has failed must be told, however much else there is.
  const std::size_t reserve = frame.payload.bytes.empty() ? limits::kBulkHeaderBytesMax : 0;
  std::size_t before = peer->unsent->load();
  do {
    if (before + bytes > options_.unsent_bytes_max + reserve) {
      return resource_exhausted("Too much is waiting to be sent to " + to_string(to) + ".");
    }
  } while (!peer->unsent->compare_exchange_weak(before, before + bytes));
  auto out = std::make_shared<OutFrame>(std::move(frame), peer->unsent);
  bool ask = false;
  {
    std::lock_guard lock(peer->mutex);
    peer->outbox.push_back(std::move(out));
    ask = !std::exchange(peer->flush_asked, true);
  }
  peer->sent = now();
  counters_.frames_sent.fetch_add(1, std::memory_order_relaxed);
  counters_.bytes_sent.fetch_add(bytes, std::memory_order_relaxed);
  if (ask) command({Command::Kind::kFlush, peer});
  return {};
}

std::shared_ptr<Peer> LibfabricFabric::find_up(PeerKey key) const {
  std::lock_guard lock(mutex_);
  const auto known = peers_.find(key.node);
  const bool up = known != peers_.end() && known->second->key == key &&
                  known->second->phase == Peer::Phase::kUp;
  return up ? known->second : nullptr;
}

void LibfabricFabric::ask(PeerKey peer) {
  if (auto known = find_up(peer)) command({Command::Kind::kAsk, std::move(known)});
}

std::vector<PeerTraffic> LibfabricFabric::traffic() const {
  std::vector<PeerTraffic> traffic;
  std::lock_guard lock(mutex_);
  for (const auto& [node, peer] : peers_)
    if (peer->phase == Peer::Phase::kUp) traffic.push_back({peer->key, peer->sent, peer->heard});
  return traffic;
}

FabricStats LibfabricFabric::stats() const {
  FabricStats stats;
  stats.frames_sent = counters_.frames_sent;
  stats.frames_received = counters_.frames_received;
  stats.bytes_sent = counters_.bytes_sent;
  stats.bytes_received = counters_.bytes_received;
  stats.strangers_refused = counters_.strangers + gate_->strangers();
  stats.garbage = counters_.garbage;
  stats.peers_up = counters_.peers_up;
  stats.bytes_unreleased = budget_->held();
  std::lock_guard lock(mutex_);
  for (const auto& [node, peer] : peers_) stats.bytes_unsent += peer->unsent->load();
  return stats;
}

}  // namespace troupe::transport
