#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "transport/fabric/connection.h"
#include "transport/fabric/fabric.h"
#include "transport/fabric/gate.h"
#include "transport/fabric/provider.h"

namespace troupe::transport {

/// One life of one peer, from `expect` or `connect` on.
struct Peer {
  enum class Phase : std::uint8_t { kWaiting, kUp, kDown };

  PeerKey key;
  FabricToken token{};
  bool calls = false;       ///< this node connects
  SocketAddress address;    ///< of the peer's gate
  SocketAddress listen_at;  ///< where it finds this node's, if this node does not connect

  std::atomic<Phase> phase{Phase::kWaiting};
  std::atomic<TimePoint> sent{};   ///< the newest frame was taken
  std::atomic<TimePoint> heard{};  ///< the newest segment of any kind came
  std::atomic<bool> forgotten{false};
  std::mutex mutex;  ///< of the two below
  std::vector<std::shared_ptr<OutFrame>> outbox;
  bool flush_asked = false;
  std::shared_ptr<std::atomic<std::size_t>> unsent = std::make_shared<std::atomic<std::size_t>>(0);

  // Of the progress thread:
  TimePoint deadline;
  TimePoint retry_at;
  Duration backoff{0};
  /// What the last attempt came to; kOwnEnd: there is no use in another one.
  LinkEnd why{"", LinkFault::kNobody};
  std::unique_ptr<GateCall> call;
  bool admitted = false;  ///< passed the gate; its connection request is due
  TimePoint admitted_until;
  std::unique_ptr<Connection> connection;
};

/// Wakes the progress thread out of its sleep; outlives the fabric if a received frame does.
struct Waker {
  Descriptor event;
  std::atomic<bool> asleep{false};
  std::atomic<bool> room{false};  ///< received frames were released; credits may flow again

  void wake();
};

/// The fabric over libfabric's connected endpoints. One thread does everything that touches
/// libfabric or a socket; other threads leave commands for it.
class LibfabricFabric final : public Fabric {
 public:
  static Result<std::unique_ptr<Fabric>> make(const FabricOptions& options, FabricEvents& events);
  ~LibfabricFabric() override;

  void identify(PeerKey self) override;
  void come_by(const ControlWay& way) override;
  std::string address() const override;
  std::string describe() const override;
  FabricPort port() const override;
  Status expect(PeerKey peer, const std::string& address, const FabricToken& token) override;
  Status connect(PeerKey peer, const std::string& address, const FabricToken& token) override;
  void forget(PeerKey peer, bool fence) override;
  Status send(PeerKey to, Frame frame) override;
  void ask(PeerKey peer) override;
  std::vector<PeerTraffic> traffic() const override;
  FabricStats stats() const override;

 private:
  struct Command {
    enum class Kind : std::uint8_t { kStart, kForget, kFlush, kAsk, kStop } kind;
    std::shared_ptr<Peer> peer;
  };
  struct Counters {
    std::atomic<std::uint64_t> frames_sent{0}, frames_received{0}, bytes_sent{0},
        bytes_received{0}, strangers{0}, garbage{0}, peers_up{0};
  };

  LibfabricFabric(const FabricOptions& options, FabricEvents& events)
      : options_(options), events_(events), self_(options.self) {}
  Status open();
  PeerKey self() const;
  ControlWay way() const;
  BulkAddress own_address() const;

  // Any thread (libfabric.cpp).
  Result<std::shared_ptr<Peer>> make_peer(PeerKey key, const std::string& address,
                                          const FabricToken& token, bool calls) const;
  SocketAddress listen_at(const BulkAddress& peer) const;
  Status add(std::shared_ptr<Peer> peer);
  void command(Command command);
  std::shared_ptr<Peer> find_up(PeerKey key) const;

  // The progress thread (libfabric_progress.cpp).
  void run();
  bool run_commands();
  void start_peer(const std::shared_ptr<Peer>& peer);
  void flush(Peer& peer);
  bool drain();
  bool read_completions();
  bool read_events();
  void on_completion(const Connection::Op& op, std::size_t bytes);
  void on_connected(Peer& peer);
  void on_broken(Peer& peer, const std::string& reason);
  void deliver(Peer& peer, Frame frame);
  void pump(Peer& peer);
  void fail(Peer& peer, const std::string& reason);
  void give_up(Peer& peer);
  std::string silence_of(const Peer& peer) const;
  void bury(Peer& peer);
  Peer* find(const fid* endpoint);

  // The progress thread, while peers are missing (libfabric_connect.cpp).
  void run_timers(TimePoint now);
  void tend_gate();
  void call_gate(Peer& peer, TimePoint now);
  void retry(Peer& peer, const std::string& reason);
  void on_gate_answer(Peer& peer);
  void on_hello(int caller, const GateHello& hello);
  void on_request(Doorway::Request request);
  Status dial(Peer& peer, std::uint16_t port);
  int sleep_ms(TimePoint now) const;
  void sleep();
  void on_descriptor(int fd);

  const FabricOptions options_;
  FabricEvents& events_;
  std::unique_ptr<Provider> provider_;
  FabricPort port_;  ///< set before it is handed out
  Descriptor epoll_;
  std::shared_ptr<Waker> waker_ = std::make_shared<Waker>();
  std::shared_ptr<ReceiveBudget> budget_;
  std::unique_ptr<Gate> gate_;
  Counters counters_;

  mutable std::mutex mutex_;  ///< of the peers, the fences, who and where this node is
  PeerKey self_;
  ControlWay way_;
  std::map<NodeId, std::shared_ptr<Peer>> peers_;
  std::map<NodeId, Incarnation> fences_;  ///< lives up to these are refused
  std::mutex commands_mutex_;
  std::vector<Command> commands_;
  std::atomic<bool> commands_waiting_{false};

  // Of the progress thread:
  std::map<NodeId, std::shared_ptr<Peer>> active_;  ///< waiting or up
  std::size_t waiting_ = 0;
  std::unique_ptr<Doorway> doorway_;
  std::vector<std::unique_ptr<Connection>> graveyard_;  ///< closed, completions may be under way
  bool stop_ = false;

  std::thread thread_;
};

}  // namespace troupe::transport
