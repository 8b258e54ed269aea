#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "transport/bulk_address.h"
#include "transport/link_messages.h"

namespace troupe::transport {

/// What the bulk lane carries. The header is an encoded message, opaque here; the payload is the
/// tensor beside it. Both keep their bytes alive until they have left. On arrival the header is on
/// an 8-byte boundary at least, the payload on a 64-byte one.
struct Frame {
  Payload header;   ///< at most limits::kBulkHeaderBytesMax
  Payload payload;  ///< at most limits::kBulkPayloadBytesMax

  std::size_t bytes() const { return header.bytes.size() + payload.bytes.size(); }
};

/// One life of one node: what connections, frames and fences are about.
struct PeerKey {
  NodeId node;
  Incarnation incarnation;
  constexpr auto operator<=>(const PeerKey&) const = default;
};

std::string to_string(const PeerKey& key);  ///< "node-1#7"

/// The secret of one pair of lives. The control lane makes one per pair and hands it to both.
using troupe::FabricToken;

/// What a fabric tells its owner, always from the fabric's own thread. The calls must not block and
/// must not destroy the fabric; they may call any other method of it.
///
/// Of one peer life: `on_peer_up`, then `on_frame` in the order sent (of frames with a payload, and
/// of those without, which overtake), then `on_peer_down` once; or only `on_peer_down` when no
/// connection came about. After `Fabric::forget` nothing more (a call that runs at that moment
/// still ends).
class FabricEvents {
 public:
  virtual ~FabricEvents() = default;
  virtual void on_frame(PeerKey from, Frame frame) = 0;
  virtual void on_peer_up(PeerKey peer) = 0;
  virtual void on_peer_down(PeerKey peer, LinkEnd end) = 0;
};

/// When something went to a peer that is up, and when anything came from it: a frame, part of one,
/// or what the fabrics tell each other.
struct PeerTraffic {
  PeerKey peer;
  TimePoint sent{};
  TimePoint heard{};
};

/// Totals since the fabric was made.
struct FabricStats {
  std::uint64_t frames_sent = 0;
  std::uint64_t frames_received = 0;
  std::uint64_t bytes_sent = 0;      ///< headers and payloads
  std::uint64_t bytes_received = 0;
  std::uint64_t strangers_refused = 0;  ///< connections that no expected peer made
  std::uint64_t garbage = 0;         ///< connections closed because they broke the format
  std::uint64_t peers_up = 0;        ///< now
  std::uint64_t bytes_unsent = 0;    ///< now: accepted by `send`, not yet handed to the network
  std::uint64_t bytes_unreleased = 0;  ///< now: received frames that somebody still holds
};

/// Carries frames between this node and its peers, at most once; those with a payload are in order
/// per pair, and so are those without. There is one connection per pair of nodes: one connects, the
/// other one expects it.
///
///     node 1                                  control lane           node 2
///       |  <- "node-2 is at A, token T" ----------+---- "node-1 comes with T" ->  |
///   connect(node-2, A, T)                                            expect(node-1, T)
///       |---- connection request: who, which lives, T --------------------------> |
///   on_peer_up(node-2)                                               on_peer_up(node-1)
///
/// All methods are thread-safe and none of them blocks. Destruction closes every connection and
/// ends all threads within a second; no event comes after it.
class Fabric {
 public:
  virtual ~Fabric() = default;

  /// From now on this node is `self`: a worker learns its id only after it has told its address,
  /// and gets a new life whenever it joins again. All peers are forgotten, without a fence.
  virtual void identify(PeerKey self) = 0;

  /// From now on peers find this node by one of the ends of that control connection, and it finds
  /// them by it; unless --bind-interface, or a device, says where it is.
  virtual void come_by(const ControlWay& way) = 0;
  /// Where peers find this node, for their `connect`: a BulkAddress, which goes over the control
  /// lane.
  virtual std::string address() const = 0;

  /// What was chosen and why, for `status`: "net at 10.0.0.1:4711 (auto: no verbs device is up)".
  virtual std::string describe() const = 0;
  /// The same in parts, with what else there would be.
  virtual FabricPort port() const = 0;

  /// Admits a peer, whose own address that is, when it comes with this token; the listener is open
  /// only while an expected peer is missing, and only where these find it. A peer that has not come
  /// by limits::kBulkExpectDeadline is down. An older life of the node is forgotten.
  /// Errors: kInvalidArgument (this node itself, or an address that this fabric cannot use),
  /// kRefused (a newer life is known).
  virtual Status expect(PeerKey peer, const std::string& address, const FabricToken& token) = 0;

  /// Connects to a peer; tries again until limits::kBulkConnectDeadline, after which the peer is
  /// down. An older life of the node is forgotten. Errors: as `expect`.
  virtual Status connect(PeerKey peer, const std::string& address, const FabricToken& token) = 0;

  /// Closes the connection and drops frames of that life, arrived or unsent. Lives up to this one
  /// stay refused when `fence` is set.
  virtual void forget(PeerKey peer, bool fence = true) = 0;

  /// Queues a frame; it may be lost only if the peer goes down.
  /// Errors: kUnavailable (unknown peer, other life, not up), kResourceExhausted (more than
  /// limits::kBulkUnsentBytesMax are waiting), kInvalidArgument (too large, or memory that the
  /// fabric cannot read).
  virtual Status send(PeerKey to, Frame frame) = 0;

  /// Has a peer that is up send a sign of life. Its fabric does that, whatever its owner is at.
  virtual void ask(PeerKey peer) = 0;
  virtual std::vector<PeerTraffic> traffic() const = 0;  ///< of all peers that are up

  virtual FabricStats stats() const = 0;
};

/// kNccl: tensor-parallel ranks, rows and outputs go by NCCL (transport/nccl,
/// transport/parcels); the rest goes as with kAuto.
enum class FabricKind : std::uint8_t { kAuto, kNet, kTcp, kShm, kVerbs, kEfa, kNccl };

std::string_view to_string(FabricKind kind);            ///< "auto", "net", ...
Result<FabricKind> parse_fabric_kind(std::string_view text);

struct FabricOptions {
  PeerKey self;  ///< may be left for identify()
  /// kAuto, kNccl: verbs if a device is up, else net, else tcp.
  FabricKind kind = FabricKind::kAuto;
  /// Interface to listen on ("eth0"); if empty, come_by() says where.
  std::string bind_interface;
  /// Numeric address of this node on the cluster's network, as far as it is known before come_by():
  /// devices for RDMA are sought there.
  std::string host = "127.0.0.1";
  std::size_t unsent_bytes_max = limits::kBulkUnsentBytesMax;      ///< per connection
  std::size_t received_bytes_max = limits::kBulkReceivedBytesMax;  ///< of frames not yet released
  Duration connect_deadline = limits::kBulkConnectDeadline;
  Duration expect_deadline = limits::kBulkExpectDeadline;
};

/// The fabric over libfabric endpoints. `events` must outlive it.
/// Errors: kUnavailable or kInvalidArgument with a sentence that says which kinds would work.
Result<std::unique_ptr<Fabric>> make_libfabric(const FabricOptions& options, FabricEvents& events);

}  // namespace troupe::transport
