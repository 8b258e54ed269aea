#include "actors/head/keeper_thread.h"

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// The Supervisor's turn waits for it: far shorter than a lease.
constexpr Duration kPatience = std::chrono::milliseconds(200);
/// Far more than a cluster has news in the minutes that a share may be away; those that come then
/// are about what can be found out again.
constexpr std::size_t kTasksMax = 4096;

}  // namespace

struct KeeperThread::State {
  void run();

  std::mutex mutex;
  std::condition_variable changed;
  std::deque<std::function<void()>> queue;  // guarded by mutex
  std::uint64_t given = 0, done = 0;        // guarded by mutex
  bool late = false;                        // guarded by mutex; nobody waits
  bool closing = false, ended = false;      // guarded by mutex
};

KeeperThread::KeeperThread() : state_(std::make_shared<State>()) {
  std::thread([state = state_] { state->run(); }).detach();
}

KeeperThread::~KeeperThread() {
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_all();
  if (state_->changed.wait_for(lock, limits::kActorStopDeadline, [&] { return state_->ended; }))
    return;
  state_->queue.clear();
  logger().error("the state folder does not answer: its last changes may be missing");
}

void KeeperThread::run(std::function<void()> task) {
  std::unique_lock lock(state_->mutex);
  if (state_->queue.size() == kTasksMax) return;
  state_->queue.push_back(std::move(task));
  const std::uint64_t number = ++state_->given;
  state_->changed.notify_all();
  if (state_->late) return;
  const auto done = [&] { return state_->done >= number; };
  if (state_->changed.wait_for(lock, kPatience, done)) return;
  state_->late = true;
  logger().warn("the state folder does not answer; the cluster goes on meanwhile");
}

void KeeperThread::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return closing || !queue.empty(); });
    if (queue.empty()) break;
    const std::function<void()> task = std::move(queue.front());
    queue.pop_front();
    lock.unlock();
    task();
    lock.lock();
    ++done;
    late = late && !queue.empty();
    changed.notify_all();
  }
  ended = true;
  changed.notify_all();
}

}  // namespace troupe
