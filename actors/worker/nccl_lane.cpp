#include "actors/worker/nccl_lane.h"

#include <variant>

#include "runtime/log.h"
#include "transport/codec.h"

namespace troupe {
namespace {

constexpr std::uint32_t kFirstDevice = 0;

bool goes_by_nccl(const Message& message) {
  return std::holds_alternative<Dispatch>(message) ||
         std::holds_alternative<ExpertOutput>(message) || std::holds_alternative<Hidden>(message);
}

}  // namespace

void NcclLane::Pair::close() const {
  if (!sender) return;
  sender->close();
  receiver->close();
}

NcclLane::~NcclLane() { end(); }

void NcclLane::end() {
  std::map<Life, Pair> pairs;
  {
    std::lock_guard lock(mutex_);
    ended_ = true;
    pairs = std::exchange(pairs_, {});
  }
  for (const auto& [life, pair] : pairs) pair.close();
}

void NcclLane::listen(BulkEvents& events) {
  events_ = &events;
  other_->listen(*this);
}

// --- Peers --------------------------------------------------------------------------------------

void NcclLane::identify(NodeId node, Incarnation incarnation) {
  std::map<Life, Pair> pairs;
  {
    std::lock_guard lock(mutex_);
    self_ = node;
    incarnation_ = incarnation;
    pairs = std::exchange(pairs_, {});
  }
  for (const auto& [life, pair] : pairs) pair.close();
  other_->identify(node, incarnation);
}

/// What a node has does not change during its life, so both ends come to the same answer.
void NcclLane::know(const Peer& peer) {
  if (peer.nccl != nccl_.version()) return;
  std::lock_guard lock(mutex_);
  if (!ended_) pairs_.try_emplace({peer.id, peer.incarnation});
}

Status NcclLane::expect(const Peer& peer) {
  know(peer);
  return other_->expect(peer);
}

Status NcclLane::connect(const Peer& peer) {
  know(peer);
  return other_->connect(peer);
}

void NcclLane::forget(NodeId node, Incarnation incarnation, bool fence) {
  take({node, incarnation}).close();
  other_->forget(node, incarnation, fence);
}

NcclLane::Pair NcclLane::find(const Life& life) const {
  std::lock_guard lock(mutex_);
  const auto it = pairs_.find(life);
  return it == pairs_.end() ? Pair() : it->second;
}

NcclLane::Pair NcclLane::take(const Life& life) {
  std::lock_guard lock(mutex_);
  const auto it = pairs_.find(life);
  if (it == pairs_.end()) return {};
  Pair pair = std::move(it->second);
  pairs_.erase(it);
  return pair;
}

NcclLane::Pair NcclLane::make_pair(const Life& life) {
  const auto [node, incarnation] = life;
  const Address from{self_, incarnation_, {ActorKind::kNodeAgent, 0}};
  const Address to{node, incarnation, {ActorKind::kNodeAgent, 0}};
  const auto tell = [this, from, to](Message message) {
    return other_->send(to.node, to.incarnation, {from, to, message_of(std::move(message))});
  };
  const auto fail = [this, life](const Error& why) { this->fail(life, why); };
  const nccl::Carrier carrier = nccl_.carrier(kFirstDevice);
  return {ParcelSender::make({to_string(node), carrier}, {tell,
                                                          [this, life](const Envelope& envelope) {
                                                            return other_->send(
                                                                life.first, life.second, envelope);
                                                          },
                                                          fail}),
          ParcelReceiver::make({carrier}, {tell,
                                           [this, life](Envelope envelope) {
                                             events_->on_envelope(life.first, life.second,
                                                                  std::move(envelope));
                                           },
                                           fail})};
}

/// What was on its way is lost, so its end is that of the connection.
void NcclLane::fail(const Life& life, const Error& why) {
  const Pair pair = take(life);
  if (!pair.sender) return;  // it has gone down
  pair.close();
  logger().warn("{} is lost to NCCL: {}", to_string(life.first), why.message);
  other_->forget(life.first, life.second, false);
  events_->on_peer_down(life.first, life.second, {why.message});
}

// --- The other lane's news ----------------------------------------------------------------------

void NcclLane::on_peer_up(NodeId node, Incarnation incarnation) {
  {
    std::lock_guard lock(mutex_);
    if (const auto it = pairs_.find({node, incarnation}); it != pairs_.end())
      it->second = make_pair(it->first);
  }
  events_->on_peer_up(node, incarnation);
}

void NcclLane::on_peer_down(NodeId node, Incarnation incarnation, LinkEnd end) {
  take({node, incarnation}).close();
  events_->on_peer_down(node, incarnation, std::move(end));
}

void NcclLane::on_envelope(NodeId node, Incarnation incarnation, Envelope envelope) {
  const auto* parcel = std::get_if<Parcel>(envelope.message.get());
  const auto* news = std::get_if<ParcelGroup>(envelope.message.get());
  if (!parcel && !news) return events_->on_envelope(node, incarnation, std::move(envelope));
  const Pair pair = find({node, incarnation});
  if (!pair.sender) return;
  if (parcel) return pair.receiver->arrived(*parcel);
  pair.sender->heard(*news);
  pair.receiver->heard(*news);
}

// --- What goes ----------------------------------------------------------------------------------

Status NcclLane::send(NodeId node, Incarnation incarnation, const Envelope& envelope) {
  if (goes_by_nccl(*envelope.message))
    if (const Pair pair = find({node, incarnation}); pair.sender)
      if (const auto sent = pair.sender->send(envelope)) return *sent;
  return other_->send(node, incarnation, envelope);
}

}  // namespace troupe
