#include "runtime/thread_pool.h"

#include <atomic>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "runtime/alternate_stack.h"
#include "runtime/float_mode.h"
#include "runtime/numa.h"

namespace troupe {
namespace {

/// A step is many short loops: how long a thread looks for the next one before it sleeps, about 150
/// us. Waking it costs more than most loops take.
constexpr int kSpins = 5000;
constexpr int kPausesPerSpin = 2;

/// Whether `ready` came true within the spins.
template <class Ready>
bool spin(bool worthwhile, const Ready& ready) {
  for (int i = 0; worthwhile && i < kSpins; ++i) {
    if (ready()) return true;
    for (int j = 0; j < kPausesPerSpin; ++j) __builtin_ia32_pause();
  }
  return ready();
}

}  // namespace

/// A round begins when `round` goes up and has ended when `busy` is 0. Both sides look at these
/// before they sleep; who changes one wakes a sleeper only where there is one.
struct ThreadPool::State {
  explicit State(const std::atomic<bool>& interrupted) : interrupted(interrupted) {}
  const std::atomic<bool>& interrupted;
  std::atomic<std::uint64_t> round{0};
  std::atomic<int> busy{0};  ///< workers that have not finished the round
  std::atomic<bool> stop{false};
  bool spins = true;  ///< there is a processor for every thread

  std::mutex mutex;
  std::condition_variable start, done;
  std::atomic<int> sleepers{0};      ///< workers; changed under the mutex
  std::atomic<bool> waiting{false};  ///< the caller sleeps; changed under the mutex
  std::atomic<std::uint64_t> wakeups{0};

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

  void begin_round() {
    ++round;
    if (sleepers == 0) return;
    { std::lock_guard lock(mutex); }
    ++wakeups;
    start.notify_all();
  }

  void await_round(std::uint64_t seen) {
    if (spin(spins, [&] { return round != seen; })) return;
    std::unique_lock lock(mutex);
    ++sleepers;
    start.wait(lock, [&] { return round != seen; });
    --sleepers;
  }

  void end_round() {
    if (--busy > 0 || !waiting) return;
    { std::lock_guard lock(mutex); }
    done.notify_one();
  }

  void await_end() {
    if (spin(spins, [&] { return busy == 0; })) return;
    std::unique_lock lock(mutex);
    waiting = true;
    done.wait(lock, [&] { return busy == 0; });
    waiting = false;
  }

  void loop(int thread) {
    const AlternateStack stack;
    set_float_mode();
    for (std::uint64_t seen = 0;; ++seen) {
      await_round(seen);
      if (stop) return;
      work(thread);
      end_round();
    }
  }
};

ThreadPool::ThreadPool(int threads, const std::vector<int>& processors)
    : threads_(threads < 1 ? 1 : threads), state_(new State(interrupted_)) {
  const std::size_t own =
      processors.empty() ? std::thread::hardware_concurrency() : processors.size();
  state_->spins = static_cast<std::size_t>(threads_) <= own;
  for (int i = 1; i < threads_; ++i)
    state_->workers.emplace_back([s = state_.get(), i, processors] {
      (void)run_on(processors);  // who calls from its own thread hears why not
      s->loop(i);
    });
}

ThreadPool::~ThreadPool() {
  state_->stop = true;
  state_->begin_round();
  for (auto& worker : state_->workers) worker.join();
}

std::uint64_t ThreadPool::progress() const {
  const std::uint64_t loops = progress_.load(std::memory_order_relaxed);
  return (loops << 32) + state_->next.load(std::memory_order_relaxed);
}

std::uint64_t ThreadPool::wakeups() const { return state_->wakeups; }

void ThreadPool::run(std::size_t count, Share share, Call call, const void* body) {
  if (threads_ == 1 || count <= 1) {
    for (std::size_t i = 0; i < count && !interrupted_.load(std::memory_order_relaxed); ++i) {
      state_->next.store(i, std::memory_order_relaxed);
      call(body, 0, i);
    }
    return;
  }
  State& s = *state_;
  s.count = count;
  s.share = share;
  s.call = call;
  s.body = body;
  s.next.store(0, std::memory_order_relaxed);
  s.busy = threads_ - 1;
  s.begin_round();
  s.work(0);
  s.await_end();
}

}  // namespace troupe
