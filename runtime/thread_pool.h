#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <exception>
#include <functional>
#include <memory>

namespace troupe {

/// Threads that run one loop together: fork, join, no queue. Owned by a Device; used from its
/// compute thread only. Which thread runs which index changes no result, because kernels never sum
/// across indices.
class ThreadPool {
 public:
  /// `threads` counts the caller: 1 means that everything runs inline.
  explicit ThreadPool(int threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  /// Changes with every loop that begins or ends and every index within one: what a stuck device is
  /// told by. Any thread may ask.
  std::uint64_t progress() const;

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
    progress_.fetch_add(1, std::memory_order_relaxed);
    run(count, [](const void* b, int thread, std::size_t i) {
          (*static_cast<const Body*>(b))(thread, i);
        }, &body);
    progress_.fetch_add(1, std::memory_order_relaxed);
    if (interrupted_.load(std::memory_order_relaxed)) throw Interrupted();
  }

 private:
  using Call = void (*)(const void* body, int thread, std::size_t index);
  void run(std::size_t count, Call call, const void* body);

  struct State;
  int threads_;
  std::atomic<std::uint64_t> progress_{0};
  std::atomic<bool> interrupted_{false};
  std::unique_ptr<State> state_;
};

}  // namespace troupe
