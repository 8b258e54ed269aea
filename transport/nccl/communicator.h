#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/clock.h"
#include "runtime/limits.h"
#include "runtime/result.h"
#include "runtime/tensor_rank.h"
#include "transport/nccl/device.h"
#include "transport/nccl/library.h"

namespace troupe::nccl {

/// How long things may take. Tests shorten them.
struct Deadlines {
  Duration form = limits::kNcclFormDeadline;
  Duration exchange = limits::kNcclExchangeDeadline;
  Duration call = limits::kNcclCallDeadline;
  Duration abort = limits::kNcclAbortDeadline;
};

/// One rank's end of an NCCL communicator: formed, used and given up once. Its own thread makes
/// all calls, so that none of them holds up anybody else; exchanges run one after the other, in the
/// order in which they are given, which must be the same on all ranks.
///
///     forming ──► up ──► broken ──► (its thread has left NCCL, or hangs there) ──► aborted
///        └──────────────────┴─ an error of NCCL's, a deadline, break_up()
///
/// Whoever waits hears of a break at once. The Watchdog, which makes and owns communicators, holds
/// them to their deadlines and aborts them.
class Communicator {
 public:
  /// Called without locks, from its own thread or whoever breaks it. They may still run while
  /// break_up() returns to another thread.
  struct Events {
    std::function<void(const UniqueId&)> id;  ///< what the other ranks form it with; rank 0's only
    std::function<void()> formed;
    std::function<void(const Error&)> broken;  ///< once
  };
  struct Options {
    std::shared_ptr<const Library> library;
    std::shared_ptr<Device> device;
    TensorRank rank;
    std::optional<UniqueId> id;  ///< none: rank 0 makes it
    Events events;
  };
  using Done = std::function<void(Result<std::vector<Payload>>)>;
  /// By rank; a rank's own entries are empty. All lengths are known: those that the others send.
  struct Exchange {
    std::vector<Payload> to;
    std::vector<std::size_t> from;
    Done done;  ///< hears once, without locks; may be null
  };

  ~Communicator();

  /// False: it is broken, and `exchange` is left as it is.
  bool exchange(Exchange& exchange);
  /// Nothing goes through it any more, and it is aborted. The first reason counts.
  void break_up(const Error& why);
  /// The same, and none of the events is called any more for it.
  void close();

 private:
  friend class Watchdog;
  Communicator(Options options, const Deadlines& deadlines, std::function<void()> wake)
      : options_(std::move(options)), deadlines_(deadlines), wake_(std::move(wake)) {}

  void start();
  /// Breaks it if it is overdue. When to look again.
  TimePoint look(TimePoint now);
  /// Whether it is broken and may be aborted now; false from then on.
  bool take_for_abort(TimePoint now);
  Comm comm();
  void end();  ///< after the abort: waits for its thread

  void work();
  Status form();
  Status settle(const std::string& what);
  Status serve_one(Exchange exchange);
  Status put_on_stream(const Exchange& exchange);
  template <class Ready>
  Status wait(const Ready& ready);
  void arm(std::optional<Duration> deadline, const std::string& what);
  bool broken();

  const Options options_;
  const Deadlines deadlines_;
  const std::function<void()> wake_;
  Stream stream_ = nullptr;                // of its own thread
  Comm own_ = nullptr;                     // the same
  std::vector<Part> sending_, receiving_;  // the same; kept until it is aborted
  std::thread thread_;

  std::mutex mutex_;
  std::condition_variable changed_;
  // guarded by mutex_
  Comm comm_ = nullptr;
  std::deque<Exchange> queue_;
  Done current_;
  TimePoint due_ = TimePoint::max();
  std::string at_;  ///< what is under way
  std::optional<Error> broken_;
  TimePoint broken_at_{};
  bool closed_ = false;  ///< nobody is told
  bool out_ = false;     ///< its thread has left NCCL
  bool taken_ = false;   ///< for the abort
};

}  // namespace troupe::nccl
