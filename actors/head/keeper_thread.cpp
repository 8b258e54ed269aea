#include "actors/head/keeper_thread.h"

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/log.h"

namespace troupe {

struct KeeperThread::State {
  struct Waiting {
    Task task;
    bool spare = false;
  };
  explicit State(std::shared_ptr<StateKeeper> k) : keeper(std::move(k)) {}
  void run(const Say& tell);

  const std::shared_ptr<StateKeeper> keeper;
  std::mutex mutex;
  std::condition_variable changed;
  /// Guarded by mutex. Others than spare ones are some for each session or member that comes or
  /// goes: they need no bound.
  std::deque<Waiting> queue;
  std::size_t spare = 0;                // guarded by mutex; of those that wait
  bool left_out = false;                // guarded by mutex; since the disk is late
  std::uint64_t given = 0, done = 0;    // guarded by mutex
  bool late = false;                    // guarded by mutex; nobody waits
  bool closing = false, ended = false;  // guarded by mutex; ended: nobody may be told any more
};

KeeperThread::KeeperThread(std::shared_ptr<StateKeeper> keeper)
    : KeeperThread(std::move(keeper), Options{}) {}

KeeperThread::KeeperThread(std::shared_ptr<StateKeeper> keeper, Options options)
    : options_(options), state_(std::make_shared<State>(std::move(keeper))) {
  // The keeper may keep it, and is the state's.
  const Say tell = [of = std::weak_ptr(state_)](const std::function<void()>& what) {
    const auto state = of.lock();
    if (!state) return;
    const std::scoped_lock lock(state->mutex);
    if (!state->ended) what();
  };
  std::thread([state = state_, tell] { state->run(tell); }).detach();
}

KeeperThread::~KeeperThread() {
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_all();
  if (state_->changed.wait_for(lock, options_.end_patience, [&] { return state_->ended; })) return;
  state_->ended = true;
  state_->queue.clear();
  logger().error("the state folder does not answer: its last changes may be missing");
}

void KeeperThread::run(Task task) { run(std::move(task), false); }
void KeeperThread::run_spare(Task task) { run(std::move(task), true); }

void KeeperThread::run(Task task, bool spare) {
  std::unique_lock lock(state_->mutex);
  if (spare && state_->spare == kSpareTasksMax) {
    if (!std::exchange(state_->left_out, true))
      logger().warn(
          "the state folder does not answer: what is found out of the weights is not noted down "
          "any more, and the next life of the head finds it out again");
    return;
  }
  state_->spare += spare;
  state_->queue.push_back({std::move(task), spare});
  const std::uint64_t number = ++state_->given;
  state_->changed.notify_all();
  if (state_->late) return;
  const auto done = [&] { return state_->done >= number; };
  if (state_->changed.wait_for(lock, options_.patience, done)) return;
  state_->late = true;
  logger().warn("the state folder does not answer; the cluster goes on meanwhile");
}

void KeeperThread::State::run(const Say& tell) {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return closing || !queue.empty(); });
    if (queue.empty()) break;
    Task task = std::move(queue.front().task);
    spare -= queue.front().spare;
    queue.pop_front();
    lock.unlock();
    task(*keeper, tell);
    task = nullptr;
    lock.lock();
    if (ended) return;
    ++done;
    late = late && !queue.empty();
    left_out = left_out && late;
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

}  // namespace troupe
