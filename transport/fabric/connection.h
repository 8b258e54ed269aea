#pragma once

#include <array>
#include <atomic>
#include <deque>
#include <memory>
#include <span>
#include <vector>

#include "transport/fabric/pace.h"
#include "transport/fabric/provider.h"
#include "transport/fabric/wire.h"

namespace troupe::transport {

struct Peer;

/// A frame on its way out. The last reference goes when the provider has let go of its bytes.
struct OutFrame {
  Frame frame;
  std::shared_ptr<std::atomic<std::size_t>> unsent;  ///< the sender's account

  OutFrame(Frame f, std::shared_ptr<std::atomic<std::size_t>> account)
      : frame(std::move(f)), unsent(std::move(account)) {}
  ~OutFrame() { unsent->fetch_sub(frame.bytes()); }
  OutFrame(const OutFrame&) = delete;
  OutFrame& operator=(const OutFrame&) = delete;
};

/// One endpoint and its buffers: cuts frames into segments and never has more of them in flight
/// than the other side has buffers posted.
///
///     sender                                     receiver: kBulkCredits + kCreditSegments buffers
///       | credits = kBulkCredits                    |
///       |-- segment (takes one credit) -----------> |  copied out, buffer posted again
///       | <----- credits ride on any segment, or ---|
///       |        on a credit segment, once half of them are due, or one is asked for
///
/// A credit segment takes no credit. Two of them that return half of the credits each can be under
/// way at a time, and some that ask for one or are asked for; the extra buffers are for these.
///
/// Frames without a payload overtake the others: they go between two segments, and have credits
/// that the others leave them.
///
/// Used by one thread. After `close` it must stay until the completion queue has been drained.
class Connection {
 public:
  /// What a completion belongs to.
  struct Op {
    Connection* connection = nullptr;
    bool receive = false;
    std::uint32_t slot = 0;
  };

  /// `info`: of a connection request, or with a destination.
  static Result<std::unique_ptr<Connection>> make(const Provider& provider, Peer& peer,
                                                  fi_info* info);
  ~Connection();

  Status connect(const SocketAddress& to, const DoorPass& pass);
  Status accept();
  void close();
  bool closed() const { return !endpoint_; }
  /// Only while it is not closed.
  Peer& peer() const { return peer_; }
  const fid* id() const { return endpoint_ ? &endpoint_->fid : nullptr; }

  void enqueue(std::shared_ptr<OutFrame> frame);
  /// Has the other side send something, whatever its owner does, with the next pump.
  void ask() { asks_ = true; }
  /// Sends what credits allow. `withhold`: return no credits, since too much is unreleased.
  Status pump(bool withhold);
  void on_sent(const Op& op);
  /// Takes an arrived segment and posts its buffer again; a frame if it completes one.
  Result<std::optional<Frame>> on_received(const Op& op, std::size_t bytes,
                                           const std::shared_ptr<ReceiveBudget>& budget);

 private:
  struct SendSlot {
    Op op;
    std::array<std::byte, kSegmentPrefixBytes> prefix;
    std::shared_ptr<OutFrame> frame;
  };

  /// Frames that are to go, in order.
  struct Outgoing {
    std::deque<std::shared_ptr<OutFrame>> queue;
    std::size_t posted = 0;  ///< bytes of the first frame that are in segments already
    bool started = false;    ///< the first frame's first segment is posted
    std::uint64_t sent_frames = 0;
  };

  Connection(const Provider& provider, Peer& peer) : provider_(provider), peer_(peer) {}
  Status open(fi_info* info);
  Status post_receive(std::uint32_t slot);
  /// The track whose turn it is, if it has a frame and the credits for one.
  std::optional<Track> next_track() const;
  /// Each posts one segment; false: try again later.
  Result<bool> post_frame(Track track, bool withhold);
  Result<bool> post_credits(SegmentKind kind, bool withhold);
  SegmentHead head(SegmentKind kind, bool withhold) const;
  void posted(const SegmentHead& head);
  Result<bool> post(SendSlot& slot, std::span<iovec> parts);

  const Provider& provider_;
  Peer& peer_;
  Fid<fid_ep> endpoint_;
  Fid<fid_mr> receive_region_, send_region_;
  Buffer receive_arena_, send_arena_;  ///< the latter only where memory must be registered
  std::vector<Op> receive_ops_;
  std::vector<SendSlot> send_slots_;
  std::vector<std::uint32_t> free_slots_;
  std::array<Outgoing, kTracks> outgoing_;
  std::array<FrameAssembler, kTracks> assemblers_;
  Pace pace_;
  int credits_ = limits::kBulkCredits;
  int due_ = 0;         ///< credits to return
  bool asks_ = false;   ///< a sign of life is to be asked for
  bool asked_ = false;  ///< the other side wants one
  std::uint32_t sent_segments_ = 0;
  std::uint32_t received_segments_ = 0;
};

}  // namespace troupe::transport
