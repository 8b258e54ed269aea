#pragma once

#include <functional>
#include <memory>

namespace troupe {

/// Does what a head keeps for its next life, in a thread of its own and in its order, so that a
/// disk that hangs holds nobody up for long. Thread-safe.
class KeeperThread {
 public:
  KeeperThread();
  /// Does what is left, unless the disk takes longer than kActorStopDeadline.
  ~KeeperThread();
  KeeperThread(const KeeperThread&) = delete;
  KeeperThread& operator=(const KeeperThread&) = delete;

  /// Comes back when it is done: what is kept is there before anybody hears of it. But not later
  /// than after a moment, and at once while the disk is late with an earlier one: then it is done
  /// when the disk goes on.
  void run(std::function<void()> task);

 private:
  struct State;
  std::shared_ptr<State> state_;  // A disk that hangs keeps the thread, which shares it.
};

}  // namespace troupe
