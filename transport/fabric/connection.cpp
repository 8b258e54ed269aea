#include "transport/fabric/connection.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

namespace troupe::transport {
namespace {

/// Receive buffers and send slots for segments that take no credit.
constexpr int kCreditSegments = 6;
/// Of the credits, these are for frames without a payload only.
constexpr int kQuickCredits = 2;
constexpr std::uint32_t kSlots = limits::kBulkCredits + kCreditSegments;
constexpr int kCreditsDue = limits::kBulkCredits / 2;
static_assert(limits::kBulkCredits - kQuickCredits >= kCreditsDue, "or credits never come back");

}  // namespace

Result<std::unique_ptr<Connection>> Connection::make(const Provider& provider, Peer& peer,
                                                     fi_info* info) {
  std::unique_ptr<Connection> connection(new Connection(provider, peer));
  if (auto status = connection->open(info); !status.ok()) return status.error();
  return connection;
}

Connection::~Connection() { close(); }

Status Connection::open(fi_info* info) {
  fid_ep* endpoint = nullptr;
  if (const int rc = fi_endpoint(provider_.domain.get(), info, &endpoint, this)) {
    return libfabric_error("An endpoint could not be made", rc);
  }
  endpoint_.reset(endpoint);
  int rc = fi_ep_bind(endpoint, &provider_.eq->fid, 0);
  if (rc == 0) rc = fi_ep_bind(endpoint, &provider_.cq->fid, FI_TRANSMIT | FI_RECV);
  if (rc == 0) rc = fi_enable(endpoint);
  if (rc != 0) return libfabric_error("An endpoint could not be enabled", rc);

  const std::size_t arena_bytes = kSlots * limits::kBulkSegmentBytes;
  receive_arena_ = Buffer::uninitialized(arena_bytes);
  if (provider_.registers_memory()) {
    send_arena_ = Buffer::uninitialized(arena_bytes);
    fid_mr* region = nullptr;
    rc = fi_mr_reg(provider_.domain.get(), receive_arena_.data(), arena_bytes, FI_RECV, 0, 0, 0,
                   &region, nullptr);
    if (rc == 0) receive_region_.reset(region);
    if (rc == 0) {
      rc = fi_mr_reg(provider_.domain.get(), send_arena_.data(), arena_bytes, FI_SEND, 0, 0, 0,
                     &region, nullptr);
    }
    if (rc != 0) {
      return libfabric_error("Buffers could not be registered (raise `ulimit -l`)", rc);
    }
    send_region_.reset(region);
  }
  receive_ops_.resize(kSlots);
  send_slots_.resize(kSlots);
  for (std::uint32_t i = 0; i < kSlots; ++i) {
    receive_ops_[i] = {this, true, i};
    send_slots_[i].op = {this, false, i};
    free_slots_.push_back(i);
    // The other side may send as soon as it is connected.
    if (auto status = post_receive(i); !status.ok()) return status;
  }
  return {};
}

Status Connection::connect(const SocketAddress& to, const DoorPass& pass) {
  const auto data = encode(pass);
  if (const int rc = fi_connect(endpoint_.get(), to.get(), data.data(), data.size())) {
    return libfabric_error("The connection could not be started", rc);
  }
  return {};
}

Status Connection::accept() {
  if (const int rc = fi_accept(endpoint_.get(), nullptr, 0)) {
    return libfabric_error("The connection could not be accepted", rc);
  }
  return {};
}

void Connection::close() {
  endpoint_.reset();
  for (Outgoing& out : outgoing_) out.queue.clear();
}

Status Connection::post_receive(std::uint32_t slot) {
  void* at = receive_arena_.data() + slot * limits::kBulkSegmentBytes;
  void* region = receive_region_ ? fi_mr_desc(receive_region_.get()) : nullptr;
  const ssize_t rc = fi_recv(endpoint_.get(), at, limits::kBulkSegmentBytes, region,
                             FI_ADDR_UNSPEC, &receive_ops_[slot]);
  return rc == 0 ? Status() : libfabric_error("A receive buffer could not be posted", rc);
}

void Connection::enqueue(std::shared_ptr<OutFrame> frame) {
  const Track track = frame->frame.payload.bytes.empty() ? Track::kQuick : Track::kBulk;
  outgoing_[static_cast<std::size_t>(track)].queue.push_back(std::move(frame));
}

std::optional<Track> Connection::next_track() const {
  if (free_slots_.size() <= kCreditSegments) return std::nullopt;
  const auto has = [&](Track track) {
    return !outgoing_[static_cast<std::size_t>(track)].queue.empty();
  };
  if (credits_ > 0 && has(Track::kQuick)) return Track::kQuick;
  if (credits_ > kQuickCredits && has(Track::kBulk)) return Track::kBulk;
  return std::nullopt;
}

Status Connection::pump(bool withhold) {
  while (const auto track = next_track()) {
    auto posted = post_frame(*track, withhold);
    if (!posted) return posted.error();
    if (!*posted) return {};
  }
  if ((asks_ || asked_ || (due_ >= kCreditsDue && !withhold)) && !free_slots_.empty()) {
    auto posted = post_credits(asks_ ? SegmentKind::kAsk : SegmentKind::kCredit, withhold);
    if (!posted) return posted.error();
    if (*posted) asks_ = asked_ = false;
  }
  return {};
}

SegmentHead Connection::head(SegmentKind kind, bool withhold) const {
  SegmentHead head;
  head.kind = kind;
  head.credits = static_cast<std::uint16_t>(withhold ? 0 : due_);
  head.sequence = sent_segments_;
  return head;
}

void Connection::posted(const SegmentHead& head) {
  free_slots_.pop_back();
  ++sent_segments_;
  due_ -= head.credits;
}

Result<bool> Connection::post_credits(SegmentKind kind, bool withhold) {
  SendSlot& slot = send_slots_[free_slots_.back()];
  const SegmentHead head = this->head(kind, withhold);
  encode(head, slot.prefix.data());
  std::array<iovec, 1> parts = {iovec{slot.prefix.data(), kSegmentHeadBytes}};
  auto sent = post(slot, parts);
  if (sent && *sent) posted(head);
  return sent;
}

/// What fits of the track's first frame.
Result<bool> Connection::post_frame(Track track, bool withhold) {
  Outgoing& out = outgoing_[static_cast<std::size_t>(track)];
  SendSlot& slot = send_slots_[free_slots_.back()];
  const std::shared_ptr<OutFrame> whole = out.queue.front();
  const Frame& frame = whole->frame;
  const auto header = frame.header.bytes;
  SegmentHead head = this->head(out.started ? SegmentKind::kMore : SegmentKind::kFirst, withhold);
  head.track = track;
  std::size_t prefix_bytes = kSegmentHeadBytes;
  if (!out.started) {
    prefix_bytes += kFramePrefixBytes;
    encode(FramePrefix{static_cast<std::uint32_t>(header.size()), frame.payload.bytes.size(),
                       out.sent_frames},
           slot.prefix.data() + kSegmentHeadBytes);
  }
  const std::size_t body =
      std::min(frame.bytes() - out.posted, pace_.segment_bytes() - prefix_bytes);
  head.body_bytes = static_cast<std::uint32_t>(prefix_bytes - kSegmentHeadBytes + body);
  encode(head, slot.prefix.data());
  std::array<iovec, 3> parts{};
  std::size_t count = 0;
  parts[count++] = {slot.prefix.data(), prefix_bytes};
  std::size_t from_header = 0;
  if (out.posted < header.size()) {
    from_header = std::min(body, header.size() - out.posted);
    parts[count++] = {const_cast<std::byte*>(header.data() + out.posted), from_header};
  }
  if (body > from_header) {
    const auto offset = out.posted + from_header - header.size();
    parts[count++] = {const_cast<std::byte*>(frame.payload.bytes.data() + offset),
                      body - from_header};
  }
  auto sent = post(slot, {parts.data(), count});
  if (!sent || !*sent) return sent;
  posted(head);
  --credits_;
  pace_.sent(now());
  slot.frame = whole;
  out.posted += body;
  out.started = out.posted < frame.bytes();
  if (!out.started) {
    out.posted = 0;
    ++out.sent_frames;
    out.queue.pop_front();
  }
  return true;
}

Result<bool> Connection::post(SendSlot& slot, std::span<iovec> parts) {
  ssize_t rc = 0;
  if (send_region_) {
    std::byte* at = send_arena_.data() + slot.op.slot * limits::kBulkSegmentBytes;
    std::size_t bytes = 0;
    for (const iovec& part : parts) {
      std::memcpy(at + bytes, part.iov_base, part.iov_len);
      bytes += part.iov_len;
    }
    rc = fi_send(endpoint_.get(), at, bytes, fi_mr_desc(send_region_.get()), FI_ADDR_UNSPEC,
                 &slot.op);
  } else {
    rc = fi_sendv(endpoint_.get(), parts.data(), nullptr, parts.size(), FI_ADDR_UNSPEC, &slot.op);
  }
  if (rc == -FI_EAGAIN) return false;
  if (rc != 0) return libfabric_error("A segment could not be sent", rc);
  return true;
}

void Connection::on_sent(const Op& op) {
  send_slots_[op.slot].frame.reset();
  free_slots_.push_back(op.slot);
}

Result<std::optional<Frame>> Connection::on_received(const Op& op, std::size_t bytes,
                                                     const std::shared_ptr<ReceiveBudget>& budget) {
  const std::byte* at = receive_arena_.data() + op.slot * limits::kBulkSegmentBytes;
  const std::span<const std::byte> segment(at, bytes);
  auto head = parse_segment(segment);
  if (!head) return head.error();
  if (head->sequence != received_segments_++) return corrupt("A segment is out of sequence.");
  credits_ += head->credits;
  if (credits_ > limits::kBulkCredits) return corrupt("More credits came back than were taken.");
  pace_.returned(head->credits, now());
  std::optional<Frame> frame;
  if (carries_frame(head->kind)) {
    FrameAssembler& assembler = assemblers_[static_cast<std::size_t>(head->track)];
    auto complete = assembler.take(head->kind, segment.subspan(kSegmentHeadBytes));
    if (!complete) return complete.error();
    if (*complete) frame = assembler.finish(budget);
    ++due_;
  }
  if (head->kind == SegmentKind::kAsk) asked_ = true;
  if (auto status = post_receive(op.slot); !status.ok()) return status.error();
  return frame;
}

}  // namespace troupe::transport
