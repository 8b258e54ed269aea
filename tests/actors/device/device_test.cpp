#include "actors/device/cpu_device.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <future>
#include <new>
#include <stdexcept>

#include "actors/device/guarded.h"
#include "kernels/cuda/twin/backend.h"
#include "model/weights.h"
#include "runtime/limits.h"
#include "tests/actors/device/manual_device.h"
#include "tests/patience.h"
#include "tests/promises.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

Device::Options options(std::uint64_t memory = 1000) {
  Device::Options o;
  o.memory_total = memory;
  o.threads = 2;
  return o;
}

}  // namespace

TEST_CASE("jobs run one after the other, in the order they came") {
  CpuDevice device(options());
  std::vector<int> order;
  std::promise<void> done;
  for (int i = 0; i < 100; ++i) REQUIRE(device.submit([&order, i] { order.push_back(i); }).ok());
  REQUIRE(device.submit([&] { done.set_value(); }).ok());
  REQUIRE(done.get_future().wait_for(kTestPatience) == std::future_status::ready);
  for (int i = 0; i < 100; ++i) CHECK(order[static_cast<std::size_t>(i)] == i);
}

TEST_CASE("the queue is bounded") {
  CpuDevice device(options());
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  std::promise<void> running;
  REQUIRE(device.submit([&, opened] { running.set_value(), opened.wait(); }).ok());
  running.get_future().wait();
  for (std::size_t i = 0; i < limits::kComputeQueueMax; ++i) REQUIRE(device.submit([] {}).ok());
  const Status refused = device.submit([] {});
  REQUIRE(!refused.ok());
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);
  gate.set_value();
}

TEST_CASE("memory is claimed within the device's and given back") {
  CpuDevice device(options(1000));
  {
    auto first = device.claim(600, "First");
    REQUIRE(first.ok());
    CHECK(device.memory_used() == 600);
    const auto second = device.claim(500, "Second");
    REQUIRE(!second.ok());
    CHECK(second.error().code == ErrorCode::kResourceExhausted);
    CHECK(second.error().message.find("100 bytes") != std::string::npos);
    CHECK(second.error().message.find("--device-memory") != std::string::npos);
    CHECK(device.memory_used() == 600);
  }
  CHECK(device.memory_used() == 0);
}

TEST_CASE("a stuck job is no progress, a working or an idle device is") {
  CpuDevice device(options());
  CHECK(device.makes_progress(now(), 0ms));
  std::promise<void> gate, running;
  auto opened = gate.get_future().share();
  REQUIRE(device
              .submit([&, opened] {
                device.threads().parallel_for(4, [](int, std::size_t) {});
                running.set_value();
                opened.wait();
              })
              .ok());
  running.get_future().wait();
  const TimePoint seen = now();
  CHECK(device.makes_progress(seen, 100ms));  // kernels ran since the last look
  CHECK(device.makes_progress(seen + 50ms, 100ms));
  CHECK(!device.makes_progress(seen + 200ms, 100ms));
  gate.set_value();
  std::promise<void> idle;
  REQUIRE(device.submit([&] { idle.set_value(); }).ok());
  idle.get_future().wait();
}

TEST_CASE("shards see the experts that the group published last") {
  CpuDevice device(options());
  CHECK(device.experts()->size() == 0);
  const auto expert = std::make_shared<const ExpertWeights>();
  const auto hosted =
      std::make_shared<const ExpertSet>(PlacementVersion{3}, ExpertSet::Map{{{1, 2}, expert}});
  device.publish(hosted, std::make_shared<const ExpertSet>());
  CHECK(device.experts()->version() == PlacementVersion{3});
  CHECK(device.experts()->has({1, 2}));
  CHECK(device.serving_experts()->size() == 0);
}

TEST_CASE("a claim is split without a byte lost") {
  CpuDevice device(options(1000));
  auto whole = device.claim(600, "All");
  REQUIRE(whole.ok());
  {
    const Device::Claim part = whole->split(200);
    CHECK(device.memory_used() == 600);
  }
  CHECK(device.memory_used() == 400);
  *whole = Device::Claim();
  CHECK(device.memory_used() == 0);
}

TEST_CASE("a device fails once, with the first reason, and says so") {
  CpuDevice device(options());
  int told = 0;
  device.on_failed([&] { ++told; });
  CHECK(device.failed().empty());
  device.fail("an uncorrectable error");
  device.fail("another");
  CHECK(device.failed() == "an uncorrectable error");
  CHECK(told == 1);
}

TEST_CASE("what a job's work throws is an error; a kernel's is the device's end") {
  CpuDevice device(options());
  CHECK(guarded(device, "A step", [] { return Status(); }).ok());
  CHECK(guarded(device, "A step", [] { return Status(corrupt("no")); }).error().message == "no");
  Status ended = guarded(device, "A step", []() -> Status { throw ThreadPool::Interrupted(); });
  CHECK(ended.error().code == ErrorCode::kUnavailable);
  CHECK(ended.error().message.find("A step was given up") == 0);
  ended = guarded(device, "A step", []() -> Status { throw std::bad_alloc(); });
  CHECK(ended.error().code == ErrorCode::kResourceExhausted);
  CHECK(ended.error().message == "A step could not be computed: memory is short.");
  CHECK(device.failed().empty());
  ended = guarded(device, "A step", []() -> Status { throw std::runtime_error("broken"); });
  CHECK(ended.error().code == ErrorCode::kUnavailable);
  CHECK(ended.error().message == "A step could not be computed: broken.");
  CHECK(device.failed() == "broken");
  ended = guarded(device, "A step", [] { return Status(); });
  CHECK(ended.error().message == "The device has failed: broken.");
}

TEST_CASE("what a job queued has ended when memory was short for it, however it says so") {
  struct Queue final : testing::ManualDevice {
    void settle() override {
      ++waits;
      if (breaks) throw std::runtime_error("broken meanwhile");
    }
    int waits = 0;
    bool breaks = false;
  };
  const auto returned = []() -> Status { return resource_exhausted("no room"); };
  const auto thrown = []() -> Status { throw std::bad_alloc(); };
  Queue device;
  CHECK(guarded(device, "A step", returned).error().message == "no room");
  CHECK(device.waits == 1);
  CHECK(guarded(device, "A step", thrown).error().code == ErrorCode::kResourceExhausted);
  CHECK(device.waits == 2);
  CHECK(guarded(device, "A step", [] { return Status(corrupt("no")); }).error().message == "no");
  CHECK(device.waits == 2);
  CHECK(device.failed().empty());
  for (const bool throws : {false, true}) {
    Queue breaking;
    breaking.breaks = true;
    const Status ended =
        throws ? guarded(breaking, "A step", thrown) : guarded(breaking, "A step", returned);
    CHECK(ended.error().code == ErrorCode::kUnavailable);
    CHECK(breaking.failed() == "broken meanwhile");
  }
}

TEST_CASE("a probe runs in turn, one at a time, and takes some time") {
  CpuDevice device(options());
  CHECK(device.probe_us() == 0);
  std::promise<void> gate;
  auto opened = gate.get_future().share();
  REQUIRE(device.submit([opened] { opened.wait(); }).ok());
  for (std::size_t i = 0; i < 2 * limits::kComputeQueueMax; ++i) device.probe();
  REQUIRE(device.submit([] {}).ok());  // they did not fill the queue
  CHECK(device.probe_us() == 0);
  gate.set_value();
  std::promise<void> idle;
  REQUIRE(device.submit([&] { idle.set_value(); }).ok());
  idle.get_future().wait();
  CHECK(device.probe_us() > 0);
}

namespace {

using What = kernels::InjectedFailure::What;

/// On a processor that has FMA.
bool twin_runs_here() { return kernels::cuda_twin_backend() != nullptr; }

Device::Options twin_options(const kernels::Backend* backend = kernels::cuda_twin_backend()) {
  return {.index = 0,
          .kind = "cuda-twin",
          .memory_total = 256u << 20,
          .threads = 1,
          .backend = backend};
}

/// What a probe says once it has run.
std::uint32_t probed(CpuDevice& device) {
  device.probe();
  std::promise<void> idle;
  REQUIRE(device.submit([&] { idle.set_value(); }, Device::Room::kAlways).ok());
  idle.get_future().wait();
  return device.probe_us();
}

std::uint32_t best_of(int probes, CpuDevice& device) {
  std::uint32_t best = probed(device);
  while (--probes > 0) best = std::min(best, probed(device));
  return best;
}

}  // namespace

TEST_CASE("an accelerator that is slow is seen by its probe, and its host's thread is not asked") {
  if (!twin_runs_here()) return;
  const kernels::Backend slowed = kernels::failing_twin_backend({What::kSlow, 0});
  CpuDevice fast(twin_options()), slow(twin_options(&slowed));
  REQUIRE(fast.open().ok());
  REQUIRE(slow.open().ok());
  const std::uint32_t usual = best_of(5, fast);
  CHECK(usual > 0);
  CHECK(usual < 1'000'000);
  const std::uint32_t longer = best_of(5, slow);
  CHECK(longer > usual);
  promised_ratio("of a slow device's probe, a usual one's", double(usual) / longer, 0.2);
}

TEST_CASE("an accelerator that becomes slow is as slow as it was fast before") {
  if (!twin_runs_here()) return;
  const kernels::Backend failing = kernels::failing_twin_backend({What::kSlow, 2000});
  CpuDevice device(twin_options(&failing));
  REQUIRE(device.open().ok());
  const std::uint32_t usual = best_of(5, device);
  std::uint32_t now = usual;
  for (int i = 0; i < 1000 && now < 5 * usual; ++i) now = best_of(3, device);
  CHECK(now >= 5 * usual);
  CHECK(device.failed().empty());
}

TEST_CASE("an accelerator that hangs fails by the probe at the latest, and its thread goes on") {
  if (!twin_runs_here()) return;
  const kernels::Backend failing = kernels::failing_twin_backend({What::kHang, 0});
  CpuDevice device(twin_options(&failing));
  REQUIRE(device.open().ok());
  const TimePoint start = now();
  device.probe();
  std::promise<void> idle;
  REQUIRE(device.submit([&] { idle.set_value(); }).ok());
  const auto next = idle.get_future();
  while (device.makes_progress(now(), 100ms) && next.wait_for(10ms) != std::future_status::ready) {
  }
  CHECK(next.wait_for(0ms) != std::future_status::ready);  // it stood still
  REQUIRE(next.wait_for(kTestPatience) == std::future_status::ready);
  CHECK(now() - start >= kernels::Accelerator::kWaitMax);
  CHECK(device.failed().find("has not ended within") != std::string::npos);
  CHECK(device.makes_progress(now(), 100ms));
}

TEST_CASE("an accelerator whose driver does not come back is taken out, a processor is not") {
  for (const std::string& kind : {std::string("cpu"), std::string("cuda-twin")}) {
    if (kind != "cpu" && !twin_runs_here()) continue;
    Device::Options of = twin_options(kind == "cpu" ? nullptr : kernels::cuda_twin_backend());
    of.kind = kind;
    std::promise<void> gate, running;  // outlive the job
    CpuDevice device(of);
    REQUIRE(device.open().ok());
    REQUIRE(device
                .submit([&] {
                  running.set_value();
                  gate.get_future().wait();
                })
                .ok());
    running.get_future().wait();
    CHECK(!device.makes_progress(now() + 2 * kernels::Accelerator::kWaitMax - 1s, 1s));
    CHECK(device.failed().empty());
    CHECK(!device.makes_progress(now() + 2 * kernels::Accelerator::kWaitMax + 1s, 1s));
    CHECK((device.failed().find("its driver has not come back") != std::string::npos) ==
          (kind != "cpu"));
    gate.set_value();
  }
}

TEST_CASE("an accelerator that hangs and is taken out lets go of its thread") {
  if (!twin_runs_here()) return;
  const kernels::Backend failing = kernels::failing_twin_backend({What::kHang, 0});
  CpuDevice device(twin_options(&failing));
  REQUIRE(device.open().ok());
  device.probe();
  std::promise<void> idle;
  REQUIRE(device.submit([&] { idle.set_value(); }).ok());
  device.fail("its driver says that it is gone");
  REQUIRE(idle.get_future().wait_for(kernels::Accelerator::kWaitMax) ==
          std::future_status::ready);
  CHECK(device.failed() == "its driver says that it is gone");
}
