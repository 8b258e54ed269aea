#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <memory>

#include "actors/head/state_keeper.h"
#include "runtime/clock.h"
#include "runtime/limits.h"

namespace troupe {

/// Has a head's keeper keep what its next life must know, in a thread of its own and in its order,
/// so that a disk that hangs holds nobody up for long. Thread-safe.
///
/// The thread may outlive this, with a task that hangs: the keeper is its own as well, and what a
/// task tells of it is told by its Say only.
class KeeperThread {
 public:
  struct Options {
    /// For a task: the Supervisor's turn waits for it, far shorter than a lease.
    Duration patience = std::chrono::milliseconds(200);
    /// For what is left at the end.
    Duration end_patience = limits::kActorStopDeadline;
  };
  explicit KeeperThread(std::shared_ptr<StateKeeper> keeper);
  KeeperThread(std::shared_ptr<StateKeeper> keeper, Options options);
  /// Does what is left, unless the disk takes longer than `end_patience`.
  ~KeeperThread();
  KeeperThread(const KeeperThread&) = delete;
  KeeperThread& operator=(const KeeperThread&) = delete;

  /// Does what it is given, unless the KeeperThread has ended: whom that tells is gone then. It
  /// must not call the KeeperThread. May be kept.
  using Say = std::function<void(const std::function<void()>&)>;
  using Task = std::function<void(StateKeeper&, const Say&)>;

  /// Comes back when it is done: what is kept is there before anybody hears of it. But not later
  /// than after a moment, and at once while the disk is late with an earlier one: then it is done
  /// when the disk goes on.
  void run(Task task);
  /// The same, for what can be found out again: while the disk is late only the first
  /// kSpareTasksMax of these are kept, and the log says that some were not.
  void run_spare(Task task);
  static constexpr std::size_t kSpareTasksMax = 4096;  ///< far more than news of some minutes

 private:
  void run(Task task, bool spare);
  struct State;
  const Options options_;
  std::shared_ptr<State> state_;  // A disk that hangs keeps the thread, which shares it.
};

}  // namespace troupe
