#include "runtime/thread_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <thread>
#include <vector>

#include "runtime/float_mode.h"

using namespace troupe;

TEST_CASE("every index runs once, whatever the number of threads") {
  for (int threads : {1, 2, 3, 8}) {
    ThreadPool pool(threads);
    for (std::size_t count : {0, 1, 2, 7, 1000}) {
      std::vector<std::atomic<int>> seen(count);
      std::atomic<bool> thread_in_range = true;
      pool.parallel_for(count, [&](int thread, std::size_t i) {
        seen[i].fetch_add(1);
        if (thread < 0 || thread >= threads) thread_in_range = false;
      });
      for (auto& n : seen) CHECK(n == 1);
      CHECK(thread_in_range);
    }
  }
}

TEST_CASE("something runs once on every thread, each time, between loops that share out") {
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    std::vector<std::atomic<int>> runs(static_cast<std::size_t>(threads));
    std::vector<std::thread::id> ids(runs.size());
    for (int round = 1; round <= 50; ++round) {
      pool.parallel_for(3, [](int, std::size_t) {});
      pool.on_each_thread([&](int thread) {
        const auto i = static_cast<std::size_t>(thread);
        ++runs[i];
        if (round == 1) ids[i] = std::this_thread::get_id();
        CHECK(ids[i] == std::this_thread::get_id());
      });
      for (const auto& count : runs) CHECK(count == round);
    }
    std::sort(ids.begin(), ids.end());
    CHECK(std::adjacent_find(ids.begin(), ids.end()) == ids.end());
  }
}

TEST_CASE("many short rounds follow one another") {
  ThreadPool pool(2);
  std::atomic<long> sum = 0;
  for (int round = 0; round < 20000; ++round)
    pool.parallel_for(4, [&](int, std::size_t i) { sum += static_cast<long>(i); });
  CHECK(sum == 20000 * 6);
}

TEST_CASE("each index shows as progress, on one thread too") {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    std::vector<std::uint64_t> seen;  // by the caller's thread
    const std::uint64_t before = pool.progress();
    std::atomic<bool> begun{false};  // the caller's thread has an index
    pool.parallel_for(100, [&](int thread, std::size_t) {
      if (thread == 0) {
        seen.push_back(pool.progress());
        begun = true;
        begun.notify_all();
      } else {
        begun.wait(false);  // or it might take them all
      }
    });
    REQUIRE_FALSE(seen.empty());
    CHECK(seen.front() != before);
    for (std::size_t i = 1; i < seen.size(); ++i) CHECK(seen[i] != seen[i - 1]);
    CHECK(pool.progress() != seen.back());
  }
}

TEST_CASE("an interrupted pool ends the loop that runs, and every later one") {
  for (int threads : {1, 2}) {
    ThreadPool pool(threads);
    std::atomic<std::size_t> run = 0;
    const auto loop = [&] {
      pool.parallel_for(1000, [&](int, std::size_t) {
        if (++run == 10) pool.interrupt();
      });
    };
    CHECK_THROWS_AS(loop(), ThreadPool::Interrupted);
    CHECK(run < 1000);
    run = 0;
    CHECK_THROWS_AS(loop(), ThreadPool::Interrupted);
    CHECK(run == 0);
  }
}

TEST_CASE("every thread of a pool computes in the float mode") {
  ThreadPool pool(3);
  std::atomic<int> set = 0;
  pool.on_each_thread([&](int thread) { set += thread == 0 || float_mode_is_set() ? 1 : 0; });
  CHECK(set == 3);
}

TEST_CASE("threads that slept are woken, and counted; a loop that follows at once wakes nobody") {
  if (std::thread::hardware_concurrency() < 2) return;
  ThreadPool pool(2);
  const auto loop = [&] { pool.parallel_for(4, [](int, std::size_t) {}); };
  // It falls asleep after some time of its own, which it may not get at once.
  bool woken = false;
  for (auto pause = std::chrono::milliseconds(50); !woken && pause.count() < 20'000; pause *= 2) {
    loop();
    std::this_thread::sleep_for(pause);
    const std::uint64_t before = pool.wakeups();
    loop();
    woken = pool.wakeups() == before + 1;
  }
  CHECK(woken);
  // On a busy machine some fall asleep, but not in every moment.
  constexpr int kLoops = 100;
  std::uint64_t fewest = kLoops;
  for (int moment = 0; moment < 100; ++moment) {
    const std::uint64_t woken = pool.wakeups();
    for (int i = 0; i < kLoops; ++i) loop();
    fewest = std::min(fewest, pool.wakeups() - woken);
  }
  CHECK(fewest < kLoops / 2);
}
