#include "transport/fabric/wire.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <new>
#include <utility>

namespace troupe::transport {
namespace {

static_assert(std::endian::native == std::endian::little, "the wire is little-endian");

constexpr std::uint32_t kHelloMagic = 0x48505254;    // "TRPH"
constexpr std::uint32_t kReplyMagic = 0x52505254;    // "TRPR"
constexpr std::uint32_t kPassMagic = 0x50505254;     // "TRPP"
constexpr std::uint32_t kSegmentMagic = 0x53505254;  // "TRPS"
constexpr std::uint32_t kFrameMagic = 0x46505254;    // "TRPF"

template <class T>
void put(std::byte*& to, T value) {
  std::memcpy(to, &value, sizeof(T));
  to += sizeof(T);
}

template <class T>
T get(const std::byte*& from) {
  T value;
  std::memcpy(&value, from, sizeof(T));
  from += sizeof(T);
  return value;
}

std::size_t round64(std::size_t bytes) { return (bytes + 63) / 64 * 64; }

/// Owns a received frame's bytes and gives them back to the budget.
struct Received {
  Received(Buffer b, std::shared_ptr<ReceiveBudget> g)
      : buffer(std::move(b)), budget(std::move(g)) {
    budget->take(buffer.size());
  }
  ~Received() { budget->release(buffer.size()); }
  Received(const Received&) = delete;
  Received& operator=(const Received&) = delete;

  Buffer buffer;
  std::shared_ptr<ReceiveBudget> budget;
};

}  // namespace

std::array<std::byte, kGateHelloBytes> encode(const GateHello& hello) {
  std::array<std::byte, kGateHelloBytes> out{};
  std::byte* p = out.data();
  put(p, kHelloMagic);
  put(p, hello.version);
  put(p, std::uint16_t{0});
  put(p, hello.from.node.value);
  put(p, hello.to.node.value);
  put(p, hello.from.incarnation.value);
  put(p, hello.to.incarnation.value);
  std::memcpy(p, hello.token.data(), hello.token.size());
  return out;
}

Result<GateHello> parse_gate_hello(std::span<const std::byte> bytes) {
  if (bytes.size() != kGateHelloBytes) return corrupt("The greeting has a wrong length.");
  const std::byte* p = bytes.data();
  if (get<std::uint32_t>(p) != kHelloMagic) return corrupt("The greeting is not one of a fabric.");
  GateHello hello;
  hello.version = get<std::uint16_t>(p);
  if (get<std::uint16_t>(p) != 0) return corrupt("The greeting has unknown fields.");
  hello.from.node.value = get<std::uint32_t>(p);
  hello.to.node.value = get<std::uint32_t>(p);
  hello.from.incarnation.value = get<std::uint64_t>(p);
  hello.to.incarnation.value = get<std::uint64_t>(p);
  std::memcpy(hello.token.data(), p, hello.token.size());
  return hello;
}

std::array<std::byte, kGateReplyBytes> encode(const GateReply& reply) {
  std::array<std::byte, kGateReplyBytes> out{};
  std::byte* p = out.data();
  put(p, kReplyMagic);
  put(p, static_cast<std::uint16_t>(reply.verdict));
  put(p, reply.port);
  return out;
}

Result<GateReply> parse_gate_reply(std::span<const std::byte> bytes) {
  if (bytes.size() != kGateReplyBytes) return corrupt("The gate's answer has a wrong length.");
  const std::byte* p = bytes.data();
  if (get<std::uint32_t>(p) != kReplyMagic) return corrupt("The answer is not one of a gate.");
  const auto verdict = get<std::uint16_t>(p);
  if (verdict > static_cast<std::uint16_t>(GateVerdict::kOtherProtocol)) {
    return corrupt("The gate's verdict is unknown.");
  }
  return GateReply{static_cast<GateVerdict>(verdict), get<std::uint16_t>(p)};
}

std::array<std::byte, kDoorPassBytes> encode(const DoorPass& pass) {
  std::array<std::byte, kDoorPassBytes> out{};
  std::byte* p = out.data();
  put(p, kPassMagic);
  put(p, pass.from.value);
  std::memcpy(p, pass.token.data(), pass.token.size());
  return out;
}

Result<DoorPass> parse_door_pass(std::span<const std::byte> bytes) {
  // Verbs pads connection data.
  if (bytes.size() < kDoorPassBytes) return corrupt("The connection data is too short.");
  const std::byte* p = bytes.data();
  if (get<std::uint32_t>(p) != kPassMagic) return corrupt("The connection data is not a pass.");
  DoorPass pass;
  pass.from.value = get<std::uint32_t>(p);
  std::memcpy(pass.token.data(), p, pass.token.size());
  return pass;
}

bool same_token(const FabricToken& a, const FabricToken& b) {
  volatile unsigned char difference = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    difference = difference | std::to_integer<unsigned char>(a[i] ^ b[i]);
  }
  return difference == 0;
}

void encode(const SegmentHead& head, std::byte* to) {
  put(to, kSegmentMagic);
  put(to, static_cast<std::uint8_t>(head.kind));
  put(to, static_cast<std::uint8_t>(head.track));
  put(to, head.credits);
  put(to, head.body_bytes);
  put(to, head.sequence);
}

void encode(const FramePrefix& prefix, std::byte* to) {
  put(to, kFrameMagic);
  put(to, prefix.header_bytes);
  put(to, prefix.payload_bytes);
  put(to, prefix.sequence);
}

Result<SegmentHead> parse_segment(std::span<const std::byte> segment) {
  if (segment.size() < kSegmentHeadBytes) return corrupt("A segment is shorter than its head.");
  const std::byte* p = segment.data();
  if (get<std::uint32_t>(p) != kSegmentMagic) return corrupt("A segment has a wrong magic number.");
  const auto kind = get<std::uint8_t>(p);
  if (kind < 1 || kind > 4) return corrupt("A segment is of an unknown kind.");
  const auto track = get<std::uint8_t>(p);
  if (track >= kTracks) return corrupt("A segment is of an unknown track.");
  SegmentHead head;
  head.kind = static_cast<SegmentKind>(kind);
  head.track = static_cast<Track>(track);
  head.credits = get<std::uint16_t>(p);
  head.body_bytes = get<std::uint32_t>(p);
  head.sequence = get<std::uint32_t>(p);
  if (head.body_bytes != segment.size() - kSegmentHeadBytes) {
    return corrupt("A segment's length is not what it says.");
  }
  if (!carries_frame(head.kind) && head.body_bytes != 0) {
    return corrupt("A credit segment carries data.");
  }
  return head;
}

Status FrameAssembler::start(std::span<const std::byte> body) {
  if (body.size() < kFramePrefixBytes) return corrupt("A frame is shorter than its prefix.");
  const std::byte* p = body.data();
  if (get<std::uint32_t>(p) != kFrameMagic) return corrupt("A frame has a wrong magic number.");
  const auto header_bytes = get<std::uint32_t>(p);
  const auto payload_bytes = get<std::uint64_t>(p);
  if (header_bytes > limits::kBulkHeaderBytesMax) return corrupt("A frame's header is too large.");
  if (payload_bytes > limits::kBulkPayloadBytesMax) {
    return corrupt("A frame's payload is too large.");
  }
  if (get<std::uint64_t>(p) != sequence_) return corrupt("A frame is out of sequence.");
  try {
    buffer_ = Buffer::uninitialized(round64(payload_bytes) + header_bytes);
  } catch (const std::bad_alloc&) {
    return resource_exhausted("There is no memory for a frame of " +
                              std::to_string(header_bytes + payload_bytes) + " bytes.");
  }
  header_bytes_ = header_bytes;
  payload_bytes_ = payload_bytes;
  filled_ = 0;
  open_ = true;
  ++sequence_;
  return {};
}

Result<bool> FrameAssembler::take(SegmentKind kind, std::span<const std::byte> body) {
  assert(carries_frame(kind));
  if ((kind == SegmentKind::kMore) != open_) {
    return corrupt(open_ ? "A frame starts within another." : "A segment belongs to no frame.");
  }
  if (!open_) {
    if (auto status = start(body); !status.ok()) return status.error();
    body = body.subspan(kFramePrefixBytes);
  } else if (body.empty()) {
    return corrupt("A segment brings nothing.");
  }
  if (body.size() > header_bytes_ + payload_bytes_ - filled_) {
    return corrupt("A frame brings more than it says.");
  }
  if (filled_ < header_bytes_) {
    const auto n = std::min(body.size(), header_bytes_ - filled_);
    if (n != 0) std::memcpy(buffer_.data() + round64(payload_bytes_) + filled_, body.data(), n);
    filled_ += n;
    body = body.subspan(n);
  }
  if (!body.empty()) {
    std::memcpy(buffer_.data() + (filled_ - header_bytes_), body.data(), body.size());
    filled_ += body.size();
  }
  return filled_ == header_bytes_ + payload_bytes_;
}

Frame FrameAssembler::finish(std::shared_ptr<ReceiveBudget> budget) {
  assert(open_ && filled_ == header_bytes_ + payload_bytes_);
  open_ = false;
  auto received = std::make_shared<const Received>(std::move(buffer_), std::move(budget));
  const std::byte* data = received->buffer.data();
  Frame frame;
  frame.payload.bytes = {data, payload_bytes_};
  if (payload_bytes_ != 0) frame.payload.owner = received;
  frame.header.bytes = {data + round64(payload_bytes_), header_bytes_};
  if (header_bytes_ != 0) frame.header.owner = std::move(received);
  return frame;
}

}  // namespace troupe::transport
