#include "transport/fabric/connection.h"

#include <rdma/fi_errno.h>

#include <algorithm>
#include <cstring>

namespace troupe::transport {
namespace {

/// Receive buffers and send slots for segments that take no credit.
constexpr int kCreditSegments = 4;
constexpr std::uint32_t kSlots = limits::kBulkCredits + kCreditSegments;
constexpr int kCreditsDue = limits::kBulkCredits / 2;
static_assert(limits::kBulkCredits >= 2);

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
  queue_.clear();
}

Status Connection::post_receive(std::uint32_t slot) {
  void* at = receive_arena_.data() + slot * limits::kBulkSegmentBytes;
  void* region = receive_region_ ? fi_mr_desc(receive_region_.get()) : nullptr;
  const ssize_t rc = fi_recv(endpoint_.get(), at, limits::kBulkSegmentBytes, region,
                             FI_ADDR_UNSPEC, &receive_ops_[slot]);
  return rc == 0 ? Status() : libfabric_error("A receive buffer could not be posted", rc);
}

Status Connection::pump(bool withhold) {
  while (!queue_.empty() && credits_ > 0 && free_slots_.size() > kCreditSegments) {
    auto posted = post_segment(started_ ? SegmentKind::kMore : SegmentKind::kFirst, withhold);
    if (!posted) return posted.error();
    if (!*posted) return {};
    --credits_;
  }
  if (due_ >= kCreditsDue && !withhold && !free_slots_.empty()) {
    auto posted = post_segment(SegmentKind::kCredit, withhold);
    if (!posted) return posted.error();
  }
  return {};
}

Result<bool> Connection::post_segment(SegmentKind kind, bool withhold) {
  SendSlot& slot = send_slots_[free_slots_.back()];
  std::array<iovec, 3> parts{};
  std::size_t count = 1;
  std::size_t prefix_bytes = kSegmentHeadBytes;
  std::size_t body = 0;
  if (kind != SegmentKind::kCredit) {
    const Frame& frame = queue_.front()->frame;
    const auto header = frame.header.bytes;
    if (kind == SegmentKind::kFirst) {
      prefix_bytes += kFramePrefixBytes;
      encode(FramePrefix{static_cast<std::uint32_t>(header.size()), frame.payload.bytes.size(),
                         sent_frames_},
             slot.prefix.data() + kSegmentHeadBytes);
    }
    body = std::min(frame.bytes() - posted_, limits::kBulkSegmentBytes - prefix_bytes);
    std::size_t from_header = 0;
    if (posted_ < header.size()) {
      from_header = std::min(body, header.size() - posted_);
      parts[count++] = {const_cast<std::byte*>(header.data() + posted_), from_header};
    }
    if (body > from_header) {
      const auto offset = posted_ + from_header - header.size();
      parts[count++] = {const_cast<std::byte*>(frame.payload.bytes.data() + offset),
                        body - from_header};
    }
  }
  SegmentHead head;
  head.kind = kind;
  head.credits = static_cast<std::uint16_t>(withhold ? 0 : due_);
  head.body_bytes = static_cast<std::uint32_t>(prefix_bytes - kSegmentHeadBytes + body);
  head.sequence = sent_segments_;
  encode(head, slot.prefix.data());
  parts[0] = {slot.prefix.data(), prefix_bytes};

  auto posted = post(slot, {parts.data(), count});
  if (!posted || !*posted) return posted;
  free_slots_.pop_back();
  ++sent_segments_;
  due_ -= head.credits;
  if (kind == SegmentKind::kCredit) return true;
  slot.frame = queue_.front();
  posted_ += body;
  started_ = posted_ < slot.frame->frame.bytes();
  if (!started_) {
    posted_ = 0;
    ++sent_frames_;
    queue_.pop_front();
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
  std::optional<Frame> frame;
  if (head->kind != SegmentKind::kCredit) {
    auto complete = assembler_.take(head->kind, segment.subspan(kSegmentHeadBytes));
    if (!complete) return complete.error();
    if (*complete) frame = assembler_.finish(budget);
    ++due_;
  }
  if (auto status = post_receive(op.slot); !status.ok()) return status.error();
  return frame;
}

}  // namespace troupe::transport
