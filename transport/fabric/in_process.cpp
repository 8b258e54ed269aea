#include "transport/fabric/in_process.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>

#include "transport/fabric/wire.h"

namespace troupe::transport {
namespace {

/// What one fabric knows of one peer.
struct Side {
  PeerKey key;
  FabricToken token{};
  bool calls = false;
  bool up = false;
  TimePoint deadline;
  std::size_t unsent = 0;
  TimePoint last_arrival;  ///< keeps a link in order whatever its delays
};

struct Member {
  FabricOptions options;
  FabricEvents* events = nullptr;
  std::map<NodeId, Side> sides;
  std::map<NodeId, Incarnation> fences;
  FabricStats stats;
};

/// Something that a member is to be told at a time.
struct Notice {
  enum class Kind : std::uint8_t { kFrame, kUp, kDown } kind = Kind::kFrame;
  TimePoint at;
  std::uint64_t order = 0;
  PeerKey to;
  PeerKey from;
  Frame frame;
  std::string reason;
};

bool later(const Notice& a, const Notice& b) {
  return std::pair(a.at, a.order) > std::pair(b.at, b.order);
}

}  // namespace

class InProcessHub::State {
 public:
  explicit State(FaultPlan faults) : faults_(faults), random_(faults.seed) {
    thread_ = std::thread([this] { run(); });
  }

  void stop() {
    {
      std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(const FabricOptions& options, FabricEvents& events) {
    std::lock_guard lock(mutex_);
    members_[options.self] = Member{options, &events, {}, {}, {}};
  }

  void rename(PeerKey from, PeerKey to) {
    std::lock_guard lock(mutex_);
    auto member = members_.extract(from);
    member.mapped().sides.clear();
    member.key() = to;
    members_.insert(std::move(member));
  }

  void remove(PeerKey self) {
    std::unique_lock lock(mutex_);
    const auto member = members_.find(self);
    std::vector<PeerKey> peers;
    for (const auto& [node, side] : member->second.sides) {
      if (side.up) peers.push_back(side.key);
    }
    for (const PeerKey& peer : peers) end_side(peer, self, "the peer closed the connection");
    members_.erase(self);
    changed_.wait(lock, [&] { return speaking_to_ != self; });
  }

  Status start(PeerKey self, const Side& wanted) {
    std::lock_guard lock(mutex_);
    Member& member = members_.at(self);
    const PeerKey key = wanted.key;
    if (wanted.calls ? key.node <= self.node : key.node >= self.node) {
      return invalid_argument("The node with the lower id connects, the higher one expects.");
    }
    const auto fence = member.fences.find(key.node);
    if (fence != member.fences.end() && key.incarnation <= fence->second) {
      return refused(to_string(key) + " was given up; a node comes back with a new incarnation.");
    }
    const auto known = member.sides.find(key.node);
    if (known != member.sides.end()) {
      if (known->second.key.incarnation > key.incarnation) {
        return refused("A newer life than " + to_string(key) + " is known.");
      }
      drop_side(self, known->second.key);
    }
    Side side = wanted;
    side.deadline =
        now() + (side.calls ? member.options.connect_deadline : member.options.expect_deadline);
    member.sides[key.node] = side;
    meet(self, key);
    changed_.notify_all();
    return {};
  }

  void forget(PeerKey self, PeerKey peer, bool fence) {
    std::lock_guard lock(mutex_);
    Member& member = members_.at(self);
    if (fence) {
      auto& fenced = member.fences[peer.node];
      fenced = std::max(fenced, peer.incarnation);
    }
    const auto side = member.sides.find(peer.node);
    if (side == member.sides.end() || side->second.key.incarnation > peer.incarnation) return;
    drop_side(self, side->second.key);
  }

  Status send(PeerKey self, PeerKey to, Frame frame) {
    std::lock_guard lock(mutex_);
    Side* side = find(self, to);
    if (!side || !side->up) return unavailable(to_string(to) + " is not connected.");
    if (frame.header.bytes.size() > limits::kBulkHeaderBytesMax ||
        frame.payload.bytes.size() > limits::kBulkPayloadBytesMax) {
      return invalid_argument("A frame for " + to_string(to) + " is too large to be sent.");
    }
    Member& member = members_.at(self);
    if (side->unsent + frame.bytes() > member.options.unsent_bytes_max) {
      return resource_exhausted("Too much is waiting to be sent to " + to_string(to) + ".");
    }
    ++member.stats.frames_sent;
    member.stats.bytes_sent += frame.bytes();
    if (faults_.drop_connection > 0 &&
        std::uniform_real_distribution<double>(0, 1)(random_) < faults_.drop_connection) {
      break_link(self, to);
      return {};
    }
    side->unsent += frame.bytes();
    Notice notice;
    notice.at = side->last_arrival = std::max(side->last_arrival, now() + delay());
    notice.to = to;
    notice.from = self;
    notice.frame = std::move(frame);
    push(std::move(notice));
    return {};
  }

  FabricStats stats(PeerKey self) {
    std::lock_guard lock(mutex_);
    const Member& member = members_.at(self);
    FabricStats stats = member.stats;
    for (const auto& [node, side] : member.sides) {
      stats.bytes_unsent += side.unsent;
      stats.peers_up += side.up ? 1 : 0;
    }
    return stats;
  }

  void cut(NodeId a, NodeId b) {
    std::lock_guard lock(mutex_);
    for (auto& [key, member] : members_) {
      const auto side = key.node == a ? member.sides.find(b) : member.sides.end();
      if (side == member.sides.end() || !side->second.up) continue;
      break_link(key, side->second.key);
      return;
    }
  }

  bool wait_idle(Duration limit) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return notices_.empty() && !speaking_to_; });
  }

 private:
  Side* find(PeerKey self, PeerKey peer) {
    const auto member = members_.find(self);
    if (member == members_.end()) return nullptr;
    const auto side = member->second.sides.find(peer.node);
    if (side == member->second.sides.end() || side->second.key != peer) return nullptr;
    return &side->second;
  }

  Duration delay() {
    if (faults_.delay_max <= faults_.delay_min) return faults_.delay_min;
    std::uniform_int_distribution<std::int64_t> range(faults_.delay_min.count(),
                                                      faults_.delay_max.count());
    return Duration(range(random_));
  }

  void push(Notice notice) {
    notice.order = next_order_++;
    notices_.push_back(std::move(notice));
    std::push_heap(notices_.begin(), notices_.end(), later);
    changed_.notify_all();
  }

  void tell(Notice::Kind kind, PeerKey to, PeerKey from, std::string reason = {}) {
    Notice notice;
    notice.kind = kind;
    notice.at = now();
    // What was sent before a link broke may still arrive before the news of it.
    if (Side* other = kind == Notice::Kind::kDown ? find(from, to) : nullptr) {
      notice.at = std::max(notice.at, other->last_arrival);
    }
    notice.to = to;
    notice.from = from;
    notice.reason = std::move(reason);
    push(std::move(notice));
  }

  /// Connects the two if each waits for just the other.
  void meet(PeerKey self, PeerKey peer) {
    Side* mine = find(self, peer);
    Side* theirs = find(peer, self);
    if (!mine || !theirs || mine->up || theirs->up) return;
    if (!same_token(mine->token, theirs->token)) {
      const PeerKey expecting = mine->calls ? peer : self;
      ++members_.at(expecting).stats.strangers_refused;
      return;
    }
    mine->up = theirs->up = true;
    tell(Notice::Kind::kUp, self, peer);
    tell(Notice::Kind::kUp, peer, self);
  }

  void break_link(PeerKey a, PeerKey b) {
    end_side(a, b, "the connection broke");
    end_side(b, a, "the connection broke");
  }

  void end_side(PeerKey self, PeerKey peer, const std::string& reason) {
    Side* side = find(self, peer);
    if (!side || !side->up) return;
    tell(Notice::Kind::kDown, self, peer, reason);
    side->up = false;
    side->deadline = TimePoint::max();
  }

  void drop_side(PeerKey self, PeerKey peer) {
    if (Side* side = find(self, peer); side && side->up) {
      end_side(peer, self, "the peer closed the connection");
    }
    members_.at(self).sides.erase(peer.node);
    std::erase_if(notices_, [&](const Notice& notice) {
      return (notice.to == self && notice.from == peer) ||
             (notice.to == peer && notice.from == self && notice.kind == Notice::Kind::kFrame);
    });
    std::make_heap(notices_.begin(), notices_.end(), later);
  }

  std::optional<TimePoint> next_deadline() const {
    std::optional<TimePoint> next;
    for (const auto& [key, member] : members_) {
      for (const auto& [node, side] : member.sides) {
        if (side.up || side.deadline == TimePoint::max()) continue;
        if (!next || side.deadline < *next) next = side.deadline;
      }
    }
    return next;
  }

  void end_late_sides(TimePoint time) {
    for (auto& [key, member] : members_) {
      for (auto& [node, side] : member.sides) {
        if (side.up || side.deadline > time) continue;
        side.deadline = TimePoint::max();
        tell(Notice::Kind::kDown, key, side.key, "no connection came about in time");
      }
    }
  }

  void run() {
    std::unique_lock lock(mutex_);
    while (!stopping_) {
      const TimePoint time = now();
      end_late_sides(time);
      if (!notices_.empty() && notices_.front().at <= time) {
        std::pop_heap(notices_.begin(), notices_.end(), later);
        Notice notice = std::move(notices_.back());
        notices_.pop_back();
        deliver(std::move(notice), lock);
        continue;
      }
      auto next = next_deadline();
      if (!notices_.empty()) next = std::min(next.value_or(TimePoint::max()), notices_.front().at);
      if (next) {
        changed_.wait_until(lock, *next);
      } else {
        changed_.wait(lock);
      }
    }
  }

  void deliver(Notice notice, std::unique_lock<std::mutex>& lock) {
    const auto member = members_.find(notice.to);
    const bool frame = notice.kind == Notice::Kind::kFrame;
    if (Side* sender = frame ? find(notice.from, notice.to) : nullptr) {
      sender->unsent -= std::min(sender->unsent, notice.frame.bytes());
    }
    if (member == members_.end() || !find(notice.to, notice.from)) return;
    if (frame) {
      ++member->second.stats.frames_received;
      member->second.stats.bytes_received += notice.frame.bytes();
    }
    FabricEvents& events = *member->second.events;
    speaking_to_ = notice.to;
    lock.unlock();
    switch (notice.kind) {
      case Notice::Kind::kFrame: events.on_frame(notice.from, std::move(notice.frame)); break;
      case Notice::Kind::kUp: events.on_peer_up(notice.from); break;
      case Notice::Kind::kDown: events.on_peer_down(notice.from, notice.reason); break;
    }
    lock.lock();
    speaking_to_.reset();
    changed_.notify_all();
  }

  const FaultPlan faults_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  std::map<PeerKey, Member> members_;
  std::vector<Notice> notices_;  ///< a heap, the next one first
  std::uint64_t next_order_ = 0;
  std::optional<PeerKey> speaking_to_;  ///< whose events are being called
  bool stopping_ = false;
  std::thread thread_;
};

class InProcessFabric final : public Fabric {
 public:
  InProcessFabric(std::shared_ptr<InProcessHub::State> state, const FabricOptions& options,
                  FabricEvents& events)
      : state_(std::move(state)), self_(options.self) {
    state_->add(options, events);
  }
  ~InProcessFabric() override { state_->remove(self_); }

  void identify(PeerKey self) override {
    state_->rename(self_, self);
    self_ = self;
  }
  std::string address() const override { return "in-process:" + to_string(self_); }
  std::string describe() const override { return "in-process (for tests)"; }
  Status expect(PeerKey peer, const FabricToken& token) override {
    Side side;
    side.key = peer;
    side.token = token;
    return state_->start(self_, side);
  }
  Status connect(PeerKey peer, const std::string& address, const FabricToken& token) override {
    if (address.rfind("in-process:", 0) != 0) {
      return invalid_argument("'" + address + "' is not the address of an in-process fabric.");
    }
    Side side;
    side.key = peer;
    side.token = token;
    side.calls = true;
    return state_->start(self_, side);
  }
  void forget(PeerKey peer, bool fence) override { state_->forget(self_, peer, fence); }
  Status send(PeerKey to, Frame frame) override {
    return state_->send(self_, to, std::move(frame));
  }
  FabricStats stats() const override { return state_->stats(self_); }

 private:
  std::shared_ptr<InProcessHub::State> state_;
  PeerKey self_;
};

InProcessHub::InProcessHub(FaultPlan faults) : state_(std::make_shared<State>(faults)) {}
InProcessHub::~InProcessHub() { state_->stop(); }

std::unique_ptr<Fabric> InProcessHub::make(const FabricOptions& options, FabricEvents& events) {
  return std::make_unique<InProcessFabric>(state_, options, events);
}

void InProcessHub::cut(NodeId a, NodeId b) { state_->cut(a, b); }
bool InProcessHub::wait_idle(Duration limit) { return state_->wait_idle(limit); }

}  // namespace troupe::transport
