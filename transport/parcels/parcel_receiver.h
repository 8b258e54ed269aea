#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/result.h"
#include "transport/message.h"
#include "transport/nccl/node.h"
#include "transport/nccl/todo.h"

namespace troupe {

/// Messages from one life of a peer whose tensors come by NCCL (parcel_sender.h): takes each tensor
/// when its Parcel says that it is on its way. Thread-safe; no call blocks.
class ParcelReceiver final : public std::enable_shared_from_this<ParcelReceiver> {
 public:
  struct Ways {
    /// The peer's sender. Called with the lock held: it neither blocks nor calls back.
    std::function<Status(Message)> tell;
    /// One has come. Called in order, without locks; as BulkEvents::on_envelope.
    std::function<void(Envelope)> deliver;
    /// It cannot be read, or the sender cannot be told: the peer has to be lost. Without locks.
    std::function<void(const Error&)> fail;
  };
  struct Options {
    nccl::Carrier carrier;
    std::size_t held_bytes_max = limits::kBulkReceivedBytesMax;  ///< that are not released yet
  };
  static std::shared_ptr<ParcelReceiver> make(Options options, Ways ways) {
    return std::shared_ptr<ParcelReceiver>(new ParcelReceiver(std::move(options), std::move(ways)));
  }
  ~ParcelReceiver() { close(); }

  /// The sender says this.
  void heard(const ParcelGroup& news);
  void arrived(const Parcel& parcel);
  /// The peer is gone: nothing of it is delivered any more.
  void close();

 private:
  using Todo = nccl::Todo;
  struct Group {
    std::uint32_t number = 0;  ///< 0: none
    std::shared_ptr<nccl::Communicator> communicator;
    std::deque<std::vector<std::byte>> headers;  ///< of parcels that are on their way
    std::uint64_t announced = 0, came = 0;
    std::uint64_t told = 0;        ///< of those that came
    std::size_t untold_bytes = 0;  ///< of the others
  };

  ParcelReceiver(Options options, Ways ways)
      : options_(std::move(options)), ways_(std::move(ways)) {}
  void form(std::uint32_t number, const nccl::UniqueId& id, Todo& todo);
  nccl::Communicator::Events events_of(std::uint32_t number);
  void came(std::uint32_t group, Payload tensor);
  void drop(const Error& why, Todo& todo);
  void say(const ParcelGroup& news, Todo& todo);

  const Options options_;
  const Ways ways_;
  /// Bytes that are on their way, or delivered and not released; outlives this if they do.
  const std::shared_ptr<std::atomic<std::size_t>> held_ =
      std::make_shared<std::atomic<std::size_t>>(0);
  std::mutex mutex_;
  // guarded by mutex_
  Group group_;
  std::uint32_t newest_ = 0;
  bool closed_ = false;
};

}  // namespace troupe
