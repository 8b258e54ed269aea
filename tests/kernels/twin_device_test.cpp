// The twin's device finds what only a GPU would break, and fails when it is told to.
#include <doctest/doctest.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <functional>
#include <new>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "kernels/cuda/address_pool.h"
#include "kernels/cuda/twin/backend.h"
#include "kernels/residual.h"
#include "runtime/clock.h"
#include "runtime/float_mode.h"
#include "runtime/split_mix.h"

namespace troupe::kernels {
namespace {

constexpr std::size_t kBytes = 4096 * sizeof(float);

std::shared_ptr<Accelerator> open_device(const AcceleratorOptions& options,
                                         InjectedFailure injected = {}) {
  set_float_mode();
  auto device = failing_twin_backend(injected).accelerator(options);
  REQUIRE(device.ok());
  return std::move(*device);
}

/// A device, and two vectors in its memory.
struct Bench {
  explicit Bench(std::uint64_t seed = 0, InjectedFailure injected = {})
      : device(open_device({0, 16u << 20, nullptr, seed}, injected)),
        stream(
            {Numerics::kBf16, CpuFamily::kBaseline, nullptr, cuda_twin_backend(), 0, device.get()}),
        a(device->memory(kBytes)),
        b(device->memory(kBytes)) {}
  Tensor tensor(const std::shared_ptr<std::byte>& memory) const {
    return stream.device_tensor(memory.get(), DType::kF32, 64, 64);
  }
  /// b += a.
  void add() { residual_add(stream, tensor(a), tensor(b)); }

  std::shared_ptr<Accelerator> device;
  Stream stream;
  std::shared_ptr<std::byte> a, b;
};

/// What a process says that does this, and the signal that ends it.
struct Ended {
  int signal = 0;
  std::string said;
};
Ended end_of(const std::function<void()>& work) {
  int ends[2];
  REQUIRE(pipe(ends) == 0);
  const pid_t child = fork();
  if (child == 0) {
    for (const int s : {SIGSEGV, SIGBUS, SIGABRT}) signal(s, SIG_DFL);
    dup2(ends[1], STDOUT_FILENO);
    dup2(ends[1], STDERR_FILENO);
    work();
    _exit(0);
  }
  close(ends[1]);
  Ended ended;
  char buffer[512];
  for (ssize_t n; (n = read(ends[0], buffer, sizeof buffer)) > 0;)
    ended.said.append(buffer, static_cast<std::size_t>(n));
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  ended.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
  return ended;
}
bool said(const Ended& ended, const char* words) {
  CAPTURE(ended.said);
  CHECK(ended.signal != 0);
  return ended.said.find(words) != std::string::npos;
}

TEST_CASE("what runs late gives what it must, by any seed") {
  if (cuda_twin_backend() == nullptr) return;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Bench bench(seed);
    std::vector<float> ones(kBytes / sizeof(float), 1.0f), sums(ones.size());
    bench.stream.write(bench.a.get(), ones.data(), kBytes);
    bench.stream.write(bench.b.get(), ones.data(), kBytes);
    ones.assign(ones.size(), 7.0f);  // it may go
    for (int i = 0; i < 40; ++i) bench.add();
    bench.stream.read(sums.data(), bench.b.get(), kBytes);
    CHECK(sums == std::vector<float>(sums.size(), 41.0f));
  }
}

TEST_CASE("memory that goes while work on it is queued is not somebody else's before it ran") {
  if (cuda_twin_backend() == nullptr) return;
  for (std::uint64_t seed = 0; seed < 50; ++seed) {
    Bench bench(seed);
    const std::vector<float> ones(kBytes / sizeof(float), 1.0f);
    std::vector<float> sums(ones.size());
    for (int i = 0; i < 20; ++i) {
      bench.stream.write(bench.a.get(), ones.data(), kBytes);
      bench.stream.write(bench.b.get(), ones.data(), kBytes);
      bench.add();
      bench.a = bench.device->memory(kBytes);  // what was there is free when the sum is made
    }
    bench.stream.read(sums.data(), bench.b.get(), kBytes);
    CHECK(sums == std::vector<float>(sums.size(), 2.0f));
  }
}

TEST_CASE("memory that was waited for can be had again") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench;
  const auto has = [&](std::size_t bytes) {
    try {
      bench.device->memory(bytes);
      return true;
    } catch (const std::bad_alloc&) {
      return false;
    }
  };
  constexpr std::size_t kMost = 12u << 20;  // of 16 MiB
  for (int i = 0; i < 3; ++i) {
    REQUIRE(has(kMost));
    bench.add();
    REQUIRE(has(kMost));
    CHECK_FALSE(has(kMost));  // the sum may still be made there
    bench.device->wait();
  }
}

TEST_CASE("a host that touches the device's memory is told so, and a copy that is touched too") {
  if (cuda_twin_backend() == nullptr) return;
  const char* const host = "the host touches memory of the CUDA twin";
  CHECK(said(end_of([] { *Bench().a = std::byte{1}; }), host));
  CHECK(said(end_of([] {
               const Bench bench;
               const volatile std::byte* const at = bench.b.get();
               (void)*at;
             }),
             host));
  CHECK(said(end_of([] {
               Bench bench;
               std::byte* const told = bench.device->tell(64).here;
               std::memset(told, 1, 64);
               bench.device->flush();
               told[3] = std::byte{2};
               bench.device->wait();
             }),
             "the host changed what a copy to the device had still to read"));
}

TEST_CASE("what is told after it was sent is found") {
  if (cuda_twin_backend() == nullptr) return;
  CHECK(said(end_of([] {
               Bench bench;
               std::byte* const told = bench.device->tell(64).here;
               std::memset(told, 1, 64);
               bench.device->wait();  // as scratch does, where it grows
               told[3] = std::byte{2};
               bench.add();
               bench.device->wait();
               bench.add();
             }),
             "the host changed what it had told the device after that was sent"));
}

TEST_CASE("a kernel that goes past what was taken is told so") {
  if (cuda_twin_backend() == nullptr) return;
  for (const std::int64_t rows : {64, 65}) {
    const Ended ended = end_of([&] {
      Bench bench;
      const auto at = [&](const auto& memory) {
        return bench.stream.device_tensor(memory.get(), DType::kF32, rows, 64);
      };
      residual_add(bench.stream, at(bench.a), at(bench.b));
      bench.device->wait();
    });
    CHECK((ended.signal != 0) == (rows == 65));
    const char* const words =
        "a kernel of the CUDA twin touches device memory that nobody has taken";
    CHECK((ended.said.find(words) != std::string::npos) == (rows == 65));
  }
}

TEST_CASE("a device that fails stays so, and says what happened") {
  if (cuda_twin_backend() == nullptr) return;
  using What = InjectedFailure::What;
  const std::pair<What, const char*> kinds[] = {
      {What::kLaunch, "touched memory"}, {What::kEcc, "ECC"}, {What::kLost, "fallen off the bus"}};
  for (const auto& [what, words] : kinds)
    for (const std::uint64_t after : {0, 5}) {
      Bench bench(1, {what, after});
      std::string why;
      std::uint64_t calls = 0;
      const auto attempt = [&] {
        try {
          bench.add();
          if (what != What::kLost) bench.device->wait();
          ++calls;
          return false;
        } catch (const AcceleratorFailed& e) {
          why = e.what();
          return true;
        }
      };
      while (!attempt()) REQUIRE(calls < 100);
      CHECK(calls == after);
      CHECK(why.find(words) != std::string::npos);
      const std::string first = why;
      CHECK(attempt());
      CHECK(why == first);
      CHECK_THROWS_AS(bench.device->wait(), AcceleratorFailed);
      CHECK_THROWS_AS(bench.device->upload(bench.a.get(), std::vector<std::byte>(3)),
                      AcceleratorFailed);
    }
}

/// What a wait fails by.
std::string why_it_fails(Accelerator& device) {
  try {
    device.wait();
    return {};
  } catch (const AcceleratorFailed& e) {
    return e.what();
  }
}

TEST_CASE("a device that hangs ends nothing, and is waited for until its deadline") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench(1, {InjectedFailure::What::kHang, 3});
  for (int i = 0; i < 3; ++i) bench.add();
  CHECK(why_it_fails(*bench.device).empty());
  const std::uint64_t before = bench.device->progress();
  for (int i = 0; i < 200; ++i) bench.add();
  const TimePoint start = now();
  CHECK(why_it_fails(*bench.device).find("has not ended within 5 s") != std::string::npos);
  CHECK(now() - start >= Accelerator::kWaitMax);
  CHECK(bench.device->progress() == before);
  CHECK_FALSE(why_it_fails(*bench.device).empty());
}

TEST_CASE("a device that hangs and is given up is waited for no longer") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench(1, {InjectedFailure::What::kHang, 0});
  bench.add();
  const TimePoint start = now();
  std::thread other([&] { bench.device->give_up("somebody took it out"); });
  CHECK(why_it_fails(*bench.device) == "somebody took it out");
  CHECK(now() - start < Accelerator::kWaitMax);
  other.join();
}

TEST_CASE("a slow device takes its time by its own clock, and computes the same") {
  if (cuda_twin_backend() == nullptr) return;
  constexpr std::uint64_t kAfter = 200;
  Bench bench(1, {InjectedFailure::What::kSlow, kAfter});
  const std::vector<float> ones(kBytes / sizeof(float), 1.0f);
  std::vector<float> sums(ones.size());
  bench.stream.write(bench.a.get(), ones.data(), kBytes);
  bench.stream.write(bench.b.get(), ones.data(), kBytes);
  const auto forty = [&] {
    return bench.device->timed([&] {
      for (int i = 0; i < 40; ++i) bench.add();
    });
  };
  std::chrono::nanoseconds fast = forty();
  for (int i = 0; i < 3; ++i) fast = std::min(fast, forty());
  while (bench.device->counts().kernels <= kAfter) bench.add();
  CHECK(forty() > 5 * fast);
  const auto added = static_cast<float>(bench.device->counts().kernels);
  bench.stream.read(sums.data(), bench.b.get(), kBytes);
  CHECK(sums == std::vector<float>(sums.size(), 1 + added));
}

TEST_CASE("memory that is not there is refused, and what is given back is there again") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench(0, {InjectedFailure::What::kMemory, 3});
  auto third = bench.device->memory(15u << 20);
  for (int i = 0; i < 2; ++i)
    CHECK_THROWS_AS(bench.device->memory(1), std::bad_alloc);  // as injected
  CHECK_NOTHROW(bench.device->memory(1));
  CHECK_THROWS_AS(bench.device->memory(1u << 20), std::bad_alloc);  // 16 MiB are all
  third = nullptr;
  CHECK_NOTHROW(bench.device->memory(15u << 20));
  CHECK(reinterpret_cast<std::uintptr_t>(bench.device->memory(3).get()) % Accelerator::kAlignment ==
        0);
}

TEST_CASE("scratch that the device has no room for in one piece goes on in the pieces it has") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench;  // 16 MiB
  std::shared_ptr<std::byte> between;
  {
    const Stream::Scope scope(bench.stream);
    bench.stream.scratch().take<std::byte>(7u << 20);
    between = bench.device->memory(256u << 10);
    bench.stream.scratch().take<std::byte>(7u << 20);
    bench.add();
  }
  const Stream::Scope scope(bench.stream);
  CHECK_NOTHROW(bench.stream.scratch().take<std::byte>(7u << 20));
  CHECK_NOTHROW(bench.stream.scratch().take<std::byte>(7u << 20));
  CHECK_THROWS_AS(bench.stream.scratch().take<std::byte>(16u << 20), std::bad_alloc);
}

TEST_CASE("what was given back while work was queued is there for those who have no other") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench;  // 16 MiB
  auto much = bench.device->memory(10u << 20);
  bench.add();
  much = nullptr;
  CHECK_THROWS_AS(bench.device->memory(10u << 20), std::bad_alloc);  // it waits for the queue
  const Stream::Scope scope(bench.stream);
  CHECK_NOTHROW(bench.stream.scratch().take<std::byte>(10u << 20));
}

TEST_CASE("room that did not grow is not taken for as large as it should be") {
  if (cuda_twin_backend() == nullptr) return;
  Bench bench(0, {InjectedFailure::What::kMemory, 3});
  Stream::Room room;
  room.at_least(bench.stream, 100);
  CHECK_THROWS_AS(room.at_least(bench.stream, 5000), std::bad_alloc);  // as injected
  CHECK(room.at_least(bench.stream, 3000) != nullptr);
}

TEST_CASE("addresses are dealt out once, and come together again") {
  constexpr std::size_t kStep = 16, kGap = 32, kAll = 1 << 14;
  for (const std::size_t gap : {std::size_t{0}, kGap}) {
    SplitMix random(gap);
    AddressPool pool(kAll, kStep, gap);
    std::vector<AddressPool::Run> taken;
    std::vector<int> owners(kAll / kStep, 0);
    const auto mark = [&](const AddressPool::Run& run, int by) {
      for (std::size_t at = run.at; at < run.at + run.bytes + gap; at += kStep) {
        REQUIRE(at < kAll);
        owners[at / kStep] += by;
        CHECK(owners[at / kStep] == (by > 0 ? 1 : 0));
      }
    };
    for (int i = 0; i < 4000; ++i) {
      if (random.next() % 2 == 0 || taken.empty()) {
        const std::size_t bytes = random.next() % 500;
        if (const auto run = pool.take(bytes)) {
          CHECK((run->at % kStep == 0 && run->bytes >= bytes && run->bytes > 0));
          mark(*run, 1);
          taken.push_back(*run);
        }
      } else {
        std::swap(taken[random.next() % taken.size()], taken.back());
        mark(taken.back(), -1);
        pool.give_back(taken.back());
        taken.pop_back();
      }
    }
    for (const auto& run : taken) pool.give_back(run);
    CHECK(!pool.take(kAll + 1));
    CHECK(pool.take(kAll - gap).has_value());
    CHECK(!pool.take(1));
  }
}

}  // namespace
}  // namespace troupe::kernels
