#include "actors/device/cpu_device.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <memory>
#include <numeric>
#include <thread>
#include <vector>

namespace troupe {
namespace {

using namespace std::chrono_literals;

const Device::Options kOptions = {.index = 3, .kind = "cpu", .memory_total = 1000, .threads = 2};

/// Waits until everything that was submitted before has run.
void drain(Device& device) {
  std::promise<void> done;
  REQUIRE(device.submit([&] { done.set_value(); }).ok());
  done.get_future().wait();
}

/// Keeps the device's thread busy until it is opened.
struct Gate {
  std::promise<void> entered, opened;
  explicit Gate(Device& device) {
    REQUIRE(device
                .submit([this] {
                  entered.set_value();
                  opened.get_future().wait();
                })
                .ok());
    entered.get_future().wait();
  }
  void open() { opened.set_value(); }
};

}  // namespace

TEST_CASE("jobs of several threads run one at a time, each thread's in order") {
  constexpr int kThreads = 4, kJobs = 500;
  CpuDevice device(kOptions);
  std::vector<std::vector<int>> seen(kThreads);  // written by jobs only: no lock
  int total = 0;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&, t] {
      for (int i = 0; i < kJobs; ++i) {
        const Status submitted = device.submit([&, t, i] {
          seen[static_cast<std::size_t>(t)].push_back(i);
          ++total;
        });
        if (!submitted.ok()) return;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  drain(device);
  CHECK(total == kThreads * kJobs);
  std::vector<int> expected(kJobs);
  std::iota(expected.begin(), expected.end(), 0);
  for (const auto& order : seen) CHECK(order == expected);
}

TEST_CASE("a job spreads over the device's threads") {
  CpuDevice device(kOptions);
  std::vector<int> squares(1000);
  REQUIRE(device
              .submit([&] {
                device.threads().parallel_for(squares.size(), [&](int, std::size_t i) {
                  squares[i] = static_cast<int>(i * i);
                });
              })
              .ok());
  drain(device);
  for (std::size_t i = 0; i < squares.size(); ++i) CHECK(squares[i] == static_cast<int>(i * i));
}

TEST_CASE("a device that goes drops what waits and ends what runs") {
  auto held = std::make_shared<int>(0);
  std::atomic<int> run = 0;
  auto owner = std::make_unique<CpuDevice>(kOptions);
  CpuDevice& device = *owner;
  Gate gate(device);
  for (int i = 0; i < 10; ++i) REQUIRE(device.submit([&run, held] { ++run; }).ok());
  std::thread destroyer([&] { owner.reset(); });
  // It cannot be gone before the running job has ended; until then it refuses.
  const auto refuses = [&] {
    const Status submitted = device.submit([&run] { ++run; });
    return !submitted.ok() && submitted.error().code == ErrorCode::kUnavailable;
  };
  while (!refuses()) std::this_thread::yield();
  gate.open();
  destroyer.join();
  CHECK(run == 0);
  CHECK(held.use_count() == 1);
}

TEST_CASE("a device that goes does not wait for a step of many kernels") {
  auto owner = std::make_unique<CpuDevice>(kOptions);
  CpuDevice& device = *owner;
  std::promise<void> started;
  std::atomic<bool> interrupted = false;
  REQUIRE(device
              .submit([&] {
                started.set_value();
                try {
                  while (true) device.threads().parallel_for(64, [](int, std::size_t) {});
                } catch (const ThreadPool::Interrupted&) {
                  interrupted = true;
                }
              })
              .ok());
  started.get_future().wait();
  owner.reset();
  CHECK(interrupted);
}

TEST_CASE("experts are published while others read them") {
  CpuDevice device(kOptions);
  REQUIRE(device.experts());
  std::atomic<bool> stop = false;
  std::thread reader([&] {
    while (!stop) {
      if (!device.experts()) break;
    }
  });
  std::shared_ptr<const ExpertSet> last;
  for (int i = 0; i < 1000; ++i) {
    last = std::make_shared<const ExpertSet>();
    device.publish(last, last);
  }
  stop = true;
  reader.join();
  CHECK(device.experts() == last);
}

TEST_CASE("utilization is the busy share since the last question") {
  CpuDevice device(kOptions);
  device.take_utilization(now());
  CHECK(device.take_utilization(now() + 1s) == doctest::Approx(0));
  Gate gate(device);
  const TimePoint begin = now();
  device.take_utilization(begin);
  CHECK(device.take_utilization(begin + 10s) == doctest::Approx(1));
  gate.open();
  drain(device);
}

}  // namespace troupe
