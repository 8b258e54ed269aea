#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "transport/message.h"
#include "transport/nccl/node.h"
#include "transport/nccl/todo.h"

namespace troupe {

/// Messages to one life of a peer whose tensors go by NCCL. The message itself goes over the bulk
/// lane, as a Parcel, and says how long the tensor is.
///
///     sender                                         receiver (parcel_receiver.h)
///       |-- Parcel: communicator, number, length --------> |  bulk lane, in order
///       |== tensor ======================================> |  NCCL, in the order of the numbers
///       | <--- kCame, now and then: so many ---------------|
///
/// Each direction of a pair of nodes has a communicator of its own, so that the sender's order is
/// the order of both. The sender waits for nobody: its tensor is at hand, and the receiver takes it
/// when it hears of it, whatever it computes.
///
/// The sender keeps a message until it knows that it came. When the communicator breaks at either
/// end, the receiver says how many have come, and that no more will; the others are sent again by
/// the bulk lane. So each message arrives once, unless the peer goes down. Until a communicator is
/// formed, and until one that broke is followed by another, all go by the bulk lane.
///
/// Thread-safe; no call blocks.
class ParcelSender final : public std::enable_shared_from_this<ParcelSender> {
 public:
  /// Called with the lock held: they neither block nor call back.
  struct Ways {
    std::function<Status(Message)> tell;               ///< the peer's receiver
    std::function<Status(const Envelope&)> otherwise;  ///< send it by the bulk lane
    /// A message that was taken is lost: the peer has to be. Called without locks.
    std::function<void(const Error&)> fail;
  };
  struct Options {
    std::string peer;  ///< for people
    nccl::Carrier carrier;
    Duration retry_min = limits::kNcclRetryMin;
  };
  static std::shared_ptr<ParcelSender> make(Options options, Ways ways) {
    return std::shared_ptr<ParcelSender>(new ParcelSender(std::move(options), std::move(ways)));
  }
  ~ParcelSender() { close(); }

  /// Of a message with a tensor. None: it does not go by NCCL now.
  std::optional<Status> send(const Envelope& envelope);
  /// The receiver says this.
  void heard(const ParcelGroup& news);
  /// The peer is gone: what is under way is dropped.
  void close();

  std::uint64_t sent() const;    ///< by NCCL
  std::uint64_t resent() const;  ///< of these, again by the bulk lane

 private:
  using Todo = nccl::Todo;
  struct Group {
    std::uint32_t number = 0;  ///< 0: none
    std::shared_ptr<nccl::Communicator> communicator;
    bool announced = false;  ///< the receiver knows of it
    bool formed_here = false, formed_there = false;
    bool up() const { return formed_here && formed_there; }
    TimePoint up_since{};
    std::uint64_t sent = 0;
  };
  struct Unheard {
    std::uint64_t number = 0;
    std::size_t bytes = 0;
    Envelope envelope;
  };

  ParcelSender(Options options, Ways ways)
      : options_(std::move(options)), ways_(std::move(ways)), retry_(options_.retry_min) {}
  void form();
  nccl::Communicator::Events events_of(std::uint32_t number);
  void formed(bool Group::*where);
  void came(std::uint64_t number);
  void drop(const Error& why, bool receiver_knows, Todo& todo);
  void settle(std::uint64_t number, Todo& todo);
  Status say(Message message, Todo& todo);

  const Options options_;
  const Ways ways_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  Group group_;
  std::uint32_t newest_ = 0;
  std::uint32_t settling_ = 0;   ///< broken: the receiver has not said yet what came; 0: none
  std::deque<Unheard> unheard_;  ///< of group_ or settling_
  std::size_t unheard_bytes_ = 0;
  TimePoint form_after_{};
  Duration retry_;
  std::uint64_t sent_ = 0, resent_ = 0;
  bool closed_ = false;
};

}  // namespace troupe
