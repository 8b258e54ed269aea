#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>

#include "transport/fabric/fabric.h"

/// What travels between two fabrics, byte for byte; all integers are little-endian. Nothing here
/// does I/O. Bytes of peers are validated here and nowhere else.
namespace troupe::transport {

inline constexpr std::uint16_t kFabricProtocol = 2;

// --- The gate: who comes --------------------------------------------------------------------

/// The first and only message of the one who connects, on the gate's plain TCP connection.
///     magic u32 | version u16 | zero u16 | from node u32 | to node u32 |
///     from incarnation u64 | to incarnation u64 | token [32]
struct GateHello {
  std::uint16_t version = kFabricProtocol;
  PeerKey from;
  PeerKey to;
  FabricToken token{};
};
inline constexpr std::size_t kGateHelloBytes = 64;
std::array<std::byte, kGateHelloBytes> encode(const GateHello& hello);
Result<GateHello> parse_gate_hello(std::span<const std::byte> bytes);

/// The gate's answer: magic u32 | verdict u16 | port u16 | zero u64. The port is the provider's.
enum class GateVerdict : std::uint16_t { kAdmitted = 0, kRefused = 1, kOtherProtocol = 2 };
struct GateReply {
  GateVerdict verdict = GateVerdict::kRefused;
  std::uint16_t port = 0;
};
inline constexpr std::size_t kGateReplyBytes = 16;
std::array<std::byte, kGateReplyBytes> encode(const GateReply& reply);
Result<GateReply> parse_gate_reply(std::span<const std::byte> bytes);

/// The provider's connection data; verbs has room for 55 bytes.
///     magic u32 | from node u32 | token [32]
struct DoorPass {
  NodeId from;
  FabricToken token{};
};
inline constexpr std::size_t kDoorPassBytes = 40;
std::array<std::byte, kDoorPassBytes> encode(const DoorPass& pass);
Result<DoorPass> parse_door_pass(std::span<const std::byte> bytes);

/// In constant time, so that no prefix of a token can be guessed.
bool same_token(const FabricToken& a, const FabricToken& b);

// --- Segments and frames --------------------------------------------------------------------

/// Every segment starts with it:
///     magic u32 | kind u8 | track u8 | credits u16 | body bytes u32 | segment sequence u32
enum class SegmentKind : std::uint8_t {
  kFirst = 1,   ///< starts a frame: a frame prefix, then header and payload bytes
  kMore = 2,    ///< goes on with the frame
  kCredit = 3,  ///< only returns credits; takes none itself
  kAsk = 4,     ///< as kCredit, and wants a kCredit back, as a sign of life
};
/// Frames of one track are in order and never mixed; the other's may come between two segments.
enum class Track : std::uint8_t {
  kBulk = 0,   ///< frames with a payload
  kQuick = 1,  ///< frames without: they overtake
};
inline constexpr std::size_t kTracks = 2;
/// The others take no credit and carry nothing.
constexpr bool carries_frame(SegmentKind kind) { return kind <= SegmentKind::kMore; }
struct SegmentHead {
  SegmentKind kind = SegmentKind::kFirst;
  Track track = Track::kBulk;
  std::uint16_t credits = 0;  ///< receive buffers that are free again since the last segment
  std::uint32_t body_bytes = 0;
  std::uint32_t sequence = 0;
};
inline constexpr std::size_t kSegmentHeadBytes = 16;

/// magic u32 | header bytes u32 | payload bytes u64 | frame sequence u64
struct FramePrefix {
  std::uint32_t header_bytes = 0;
  std::uint64_t payload_bytes = 0;
  std::uint64_t sequence = 0;
};
inline constexpr std::size_t kFramePrefixBytes = 24;
inline constexpr std::size_t kSegmentPrefixBytes = kSegmentHeadBytes + kFramePrefixBytes;

void encode(const SegmentHead& head, std::byte* to);
void encode(const FramePrefix& prefix, std::byte* to);
/// `segment` is exactly what arrived.
Result<SegmentHead> parse_segment(std::span<const std::byte> segment);

/// Counts received bytes that are not yet released, and tells when there is room again.
class ReceiveBudget {
 public:
  ReceiveBudget(std::size_t bytes_max, std::function<void()> on_room)
      : bytes_max_(bytes_max), on_room_(std::move(on_room)) {}

  bool full() const { return held_.load(std::memory_order_relaxed) >= bytes_max_; }
  std::size_t held() const { return held_.load(std::memory_order_relaxed); }
  void take(std::size_t bytes) { held_.fetch_add(bytes); }
  void release(std::size_t bytes) {
    const auto before = held_.fetch_sub(bytes);
    if (before >= bytes_max_ && before - bytes < bytes_max_) on_room_();
  }

 private:
  const std::size_t bytes_max_;
  const std::function<void()> on_room_;
  std::atomic<std::size_t> held_{0};
};

/// Puts the segments of one track together. After an error it is of no more use.
class FrameAssembler {
 public:
  /// Takes the body of a kFirst or kMore segment; true when a frame is complete.
  Result<bool> take(SegmentKind kind, std::span<const std::byte> body);
  /// The complete frame, in one fresh allocation; counted in `budget` until it is released.
  Frame finish(std::shared_ptr<ReceiveBudget> budget);

 private:
  Status start(std::span<const std::byte> body);

  bool open_ = false;
  std::uint64_t sequence_ = 0;      ///< of the next frame
  std::size_t header_bytes_ = 0;
  std::size_t payload_bytes_ = 0;
  std::size_t filled_ = 0;          ///< of header, then payload
  Buffer buffer_;                   ///< payload, then the header on the next 64-byte boundary
};

}  // namespace troupe::transport
