#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <vector>

namespace troupe {

/// Threads that run one loop together: fork, join, no queue. Owned by a Device; used from its
/// compute thread only. Its threads have the float mode of runtime/float_mode.h. Which thread runs
/// which index changes no result, because kernels never sum across indices.
class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means that everything runs inline. The others run on these
  /// processors only; none: on any.
  explicit ThreadPool(int threads, const std::vector<int>& processors = {});
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Changes with every loop that begins or ends and every index within one: what a stuck device is
  /// told by. Any thread may ask.
  std::uint64_t progress() const;

  /// How often a loop had to wake threads that slept: a step of many short loops should not.
  std::uint64_t wakeups() const;

  /// What loops throw once interrupt() has been called.
  struct Interrupted : std::exception {
    const char* what() const noexcept override { return "the device is being stopped"; }
  };
  /// Ends the loop that runs after the indices at hand, and every later one at once. Any thread.
  void interrupt() { interrupted_.store(true, std::memory_order_relaxed); }

  /// Calls body(thread, i) once for every i in [0, count), and returns when all are done.
  /// `thread` is in [0, threads()), for per-thread scratch. Does not allocate. Throws Interrupted.
  template <class Body>
  void parallel_for(std::size_t count, const Body& body) {
    fork(
        count, Share::kNext,
        [](const void* b, int thread, std::size_t i) { (*static_cast<const Body*>(b))(thread, i); },
        &body);
  }

  /// Calls body(thread) once on every thread. Throws Interrupted.
  template <class Body>
  void on_each_thread(const Body& body) {
    fork(
        static_cast<std::size_t>(threads_), Share::kOwn,
        [](const void* b, int thread, std::size_t) { (*static_cast<const Body*>(b))(thread); },
        &body);
  }

 private:
  using Call = void (*)(const void* body, int thread, std::size_t index);
  enum class Share : std::uint8_t {
    kNext,  ///< a thread takes the next index
    kOwn,   ///< it takes that of its own number
  };
  void fork(std::size_t count, Share share, Call call, const void* body) {
    progress_.fetch_add(1, std::memory_order_relaxed);
    run(count, share, call, body);
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (interrupted_.load(std::memory_order_relaxed)) throw Interrupted();
  }
  void run(std::size_t count, Share share, Call call, const void* body);

  struct State;
  int threads_;
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<bool> interrupted_{false};
  std::unique_ptr<State> state_;
};

}  // namespace troupe
