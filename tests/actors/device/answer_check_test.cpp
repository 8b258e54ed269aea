// Cores and kernels that compute wrongly are found: known answers on every thread.
#include "actors/device/answer_check.h"

#include <doctest/doctest.h>
#include <sched.h>

#include <atomic>
#include <future>
#include <string>
#include <string_view>

#include "actors/device/cpu_device.h"
#include "kernels/cuda/twin/backend.h"
#include "kernels/doubles/spoilt_backend.h"

using namespace troupe;

namespace {

const CpuFamily kBest = supported_cpu_families().back();

std::vector<Numerics> all_here() { return numerics_of(kBest); }

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

/// The processor's kernels, of which one answers wrongly from some moment on.
struct Broken {
  explicit Broken(const char* o, bool at_once = true,
                  const kernels::Backend& of = kernels::cpu_backend())
      : op(o), now(at_once), backend(of, [this](std::string_view by) { return now && by == op; }) {}

  const std::string op;
  std::atomic<bool> now;
  const kernels::SpoiltBackend backend;
};

std::string families_found(const Broken& broken, int threads = 2) {
  ThreadPool pool(threads);
  AnswerCheck check(pool, {.backend = &broken.backend});
  const auto begun = check.begin(all_here(), kBest);
  return begun.ok() ? "" : begun.error().message;
}

}  // namespace

TEST_CASE("a processor that computes as it must is found to, by any number of threads") {
  for (const int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    AnswerCheck check(pool);
    REQUIRE(check.begin(all_here(), kBest).ok());
    for (int call = 0; call < 200; ++call) CHECK(check.next().ok());
  }
}

TEST_CASE("the threads run where they did before") {
  cpu_set_t before, after;
  REQUIRE(sched_getaffinity(0, sizeof before, &before) == 0);
  ThreadPool pool(1);
  AnswerCheck check(pool);
  CHECK(check.begin(all_here(), kBest).ok());
  REQUIRE(sched_getaffinity(0, sizeof after, &after) == 0);
  CHECK(CPU_EQUAL(&before, &after));
}

TEST_CASE("an op that is broken at the start is named, with family, core and thread") {
  for (const char* op : {"linear", "expert_mlp", "attention"}) {
    const std::string found = families_found(Broken(op));
    CAPTURE(found);
    CHECK(has(found, std::string(op) + " ("));
    CHECK(has(found, "gave a wrong result on core "));
    CHECK(has(found, "(compute thread 0)"));
    CHECK(has(found, "no right one since the start"));
  }
}

TEST_CASE("an op that breaks later is found within a round, with its last right answer") {
  for (const char* op : {"linear", "expert_mlp", "attention"}) {
    ThreadPool pool(2);
    Broken broken(op, false);
    AnswerCheck check(pool, {.backend = &broken.backend});
    REQUIRE(check.begin(all_here(), kBest).ok());
    const TimePoint begun = now();  // everything had a right answer before
    int calls = 0;
    Status right;
    while ((right = check.next()).ok()) {
      REQUIRE(++calls < 200);
      broken.now = calls >= 69;
    }
    const auto taken = std::chrono::duration_cast<std::chrono::seconds>(now() - begun);
    CHECK(calls >= 69);
    CHECK(calls < 70 + 60);
    CHECK(has(right.error().message, op));
    const std::string last = "its last right one was ";
    const std::size_t told = right.error().message.find(last);
    REQUIRE(told != std::string::npos);
    CHECK(std::stoi(right.error().message.substr(told + last.size())) <= taken.count() + 1);
  }
}

TEST_CASE("kernels that are wrong everywhere alike are told from a broken core") {
  ThreadPool pool(3);
  const Broken broken("linear");  // as if the family's kernels did not fit
  AnswerCheck check(pool, {.backend = &broken.backend});
  CHECK(!check.begin(all_here(), kBest).ok());
  CHECK(check.agreed());
}

TEST_CASE("a device whose answers become wrong fails, and says so once") {
  Broken broken("linear", false);
  CpuDevice device({.index = 0,
                    .threads = 2,
                    .backend = &broken.backend,
                    .known_answers_every = std::chrono::seconds(10)});
  int told = 0;
  device.on_failed([&] { ++told; });
  REQUIRE(device.prove(all_here()).ok());
  CHECK(device.failed().empty());
  for (int probe = 0; probe < 40; ++probe) {
    device.probe();
    std::promise<void> idle;
    REQUIRE(device.submit([&] { idle.set_value(); }).ok());
    idle.get_future().wait();
    if (probe < 3) CHECK(device.failed().empty());
    broken.now = probe >= 3;
  }
  CHECK(has(device.failed(), "linear ("));
  CHECK(told == 1);
}

TEST_CASE("a device that computes wrongly from the start does not prove itself") {
  const Broken broken("attention");
  CpuDevice device({.index = 0, .threads = 1, .backend = &broken.backend});
  const auto proven = device.prove(all_here());
  REQUIRE(!proven.ok());
  CHECK(has(proven.error().message, "attention"));
}

TEST_CASE("the twin of a GPU is asked the same, and offers what its kernels compute") {
  const kernels::Backend* const twin = kernels::cuda_twin_backend();
  if (twin == nullptr) return;  // no fma
  Device::Options options = {
      .index = 0, .kind = "cuda-twin", .memory_total = 1 << 30, .threads = 2, .backend = twin};
  CpuDevice device(options);
  REQUIRE(device.open().ok());
  CHECK(device.numerics() == std::vector{Numerics::kBf16KvFp8, Numerics::kBf16,
                                         Numerics::kCudaMmaKvFp8, Numerics::kCudaMma});
  const auto proven = device.prove(device.numerics());
  REQUIRE(proven.ok());
  CHECK(proven->numerics == device.numerics());

  const Broken spoilt("linear", true, *twin);
  options.backend = &spoilt.backend;
  CpuDevice broken(options);
  REQUIRE(broken.open().ok());
  const auto refused = broken.prove(broken.numerics());
  REQUIRE(!refused.ok());
  CHECK(has(refused.error().message, "linear ("));
  CHECK(has(refused.error().message, "(cuda_twin) gave a wrong result; "));
}
