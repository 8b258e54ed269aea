#include "runtime/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/alternate_stack.h"

namespace troupe {

struct ThreadPool::State {
  explicit State(const std::atomic<bool>& interrupted) : interrupted(interrupted) {}
  const std::atomic<bool>& interrupted;
  std::mutex mutex;
  std::condition_variable start, done;
  std::uint64_t round = 0;  // guarded by mutex; also read by spinning workers
  std::atomic<std::uint64_t> round_hint{0};
  int busy = 0;  // workers that have not finished the round
  bool stop = false;

  std::size_t count = 0;
  Share share = Share::kNext;
  Call call = nullptr;
  const void* body = nullptr;
  std::atomic<std::size_t> next{0};

  std::vector<std::thread> workers;

  void work(int thread) {
    if (share == Share::kOwn) return call(body, thread, static_cast<std::size_t>(thread));
    for (std::size_t i; (i = next.fetch_add(1, std::memory_order_relaxed)) < count;) {
      if (interrupted.load(std::memory_order_relaxed)) return;
      call(body, thread, i);
    }
  }

  void loop(int thread) {
    const AlternateStack stack;
    std::uint64_t seen = 0;
    while (true) {
      // A step is many short loops: wait a moment for the next one before sleeping.
      for (int spin = 0; spin < 2000 && round_hint.load(std::memory_order_acquire) == seen; ++spin)
        __builtin_ia32_pause();
      std::unique_lock lock(mutex);
      start.wait(lock, [&] { return stop || round != seen; });
      if (stop) return;
      seen = round;
      lock.unlock();
      work(thread);
      lock.lock();
      if (--busy == 0) done.notify_one();
    }
  }
};

ThreadPool::ThreadPool(int threads)
    : threads_(threads < 1 ? 1 : threads), state_(new State(interrupted_)) {
  for (int i = 1; i < threads_; ++i)
    state_->workers.emplace_back([s = state_.get(), i] { s->loop(i); });
}

ThreadPool::~ThreadPool() {
  {
    std::lock_guard lock(state_->mutex);
    state_->stop = true;
    state_->round_hint.fetch_add(1);
  }
  state_->start.notify_all();
  for (auto& worker : state_->workers) worker.join();
}

std::uint64_t ThreadPool::progress() const {
  const std::uint64_t loops = progress_.load(std::memory_order_relaxed);
  return (loops << 32) + state_->next.load(std::memory_order_relaxed);
}

void ThreadPool::run(std::size_t count, Share share, Call call, const void* body) {
  if (threads_ == 1 || count <= 1) {
    for (std::size_t i = 0; i < count && !interrupted_.load(std::memory_order_relaxed); ++i) {
      state_->next.store(i, std::memory_order_relaxed);
      call(body, 0, i);
    }
    return;
  }
  State& s = *state_;
  {
    std::lock_guard lock(s.mutex);
    s.count = count;
    s.share = share;
    s.call = call;
    s.body = body;
    s.next.store(0, std::memory_order_relaxed);
    s.busy = threads_ - 1;
    ++s.round;
    s.round_hint.store(s.round, std::memory_order_release);
  }
  s.start.notify_all();
  s.work(0);
  std::unique_lock lock(s.mutex);
  s.done.wait(lock, [&] { return s.busy == 0; });
}

}  // namespace troupe
