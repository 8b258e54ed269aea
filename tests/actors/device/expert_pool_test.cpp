#include "actors/device/expert_pool.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <memory>
#include <new>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "tests/actors/device/manual_device.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

/// Writes down the layer of each pass and how many pairs it had.
struct LoggingArithmetic final : ExpertArithmetic {
  std::size_t run(const ExpertSet&, const ExpertPairs& pairs) override {
    if (trouble) trouble();
    passes.emplace_back(pairs.layer, pairs.experts.size());
    for (std::size_t i = 0; i < pairs.experts.size(); ++i) *pairs.outputs[i] = *pairs.rows[i];
    return std::set<std::int32_t>(pairs.experts.begin(), pairs.experts.end()).size();
  }
  std::vector<std::pair<std::int32_t, std::size_t>> passes;
  std::function<void()> trouble;
};

/// One row for one expert; goes on from layer to layer up to `last`.
struct Walker final : ExpertWork {
  Walker(ExpertPool& to, LoggingArithmetic& with, std::int32_t from, std::int32_t to_layer)
      : pool(to), layer(from), last(to_layer) {
    arithmetic = &with;
  }
  void join() {
    set = experts;
    output = std::byte{0};
    pairs = {layer, rows, ids, outputs};
    passes_before = with().passes.size();
    pool.join(*this, keep);
  }
  void computed(const Status& done) override {
    longest_wait = std::max(longest_wait, with().passes.size() - passes_before);
    if (!done.ok()) {
      failed = done.error().message;
      ended = true;
    } else {
      CHECK(output == row);
    }
  }
  void go_on() override {
    ended = ended || ++layer > last;
    if (!ended) join();
  }
  LoggingArithmetic& with() const { return static_cast<LoggingArithmetic&>(*arithmetic); }

  ExpertPool& pool;
  std::int32_t layer, last;
  std::shared_ptr<const ExpertSet> experts = shared_set();
  std::shared_ptr<int> keep = std::make_shared<int>();
  std::byte row{7}, output{};
  std::array<const std::byte*, 1> rows{&row};
  std::array<std::int32_t, 1> ids{3};
  std::array<std::byte*, 1> outputs{&output};
  std::size_t passes_before = 0, longest_wait = 0;
  bool ended = false;
  std::string failed;

 private:
  static std::shared_ptr<const ExpertSet> shared_set() {
    static const auto set = std::make_shared<const ExpertSet>();
    return set;
  }
};

using Passes = std::vector<std::pair<std::int32_t, std::size_t>>;

}  // namespace

TEST_CASE("what reaches a layer before the pass begins is one pass") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker a(device.pool(), arithmetic, 3, 4), b(device.pool(), arithmetic, 3, 4);
  REQUIRE(device.submit([&] { a.join(); }).ok());
  REQUIRE(device.submit([&] { b.join(); }).ok());
  device.run_all();
  CHECK(arithmetic.passes == Passes{{3, 2}, {4, 2}});
  CHECK(device.experts_read() == 2);  // one expert a pass
  CHECK((a.ended && b.ended));
}

TEST_CASE("a step that is alone goes on at once, by the next job") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker alone(device.pool(), arithmetic, 1, 1);
  alone.join();
  CHECK(device.jobs() == 1);
  REQUIRE(device.run_one());
  CHECK(alone.ended);
  CHECK(device.jobs() == 0);
}

TEST_CASE("steps at different layers come together") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker ahead(device.pool(), arithmetic, 5, 10), behind(device.pool(), arithmetic, 2, 10);
  ahead.join();
  behind.join();
  device.run_all();
  CHECK(arithmetic.passes ==
        Passes{{2, 1}, {3, 1}, {4, 1}, {5, 2}, {6, 2}, {7, 2}, {8, 2}, {9, 2}, {10, 2}});
}

TEST_CASE("an express step goes first at each layer, and alone, and others get on") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker other(device.pool(), arithmetic, 2, 4), late(device.pool(), arithmetic, 3, 14);
  late.express = true;
  other.join();
  late.join();
  device.run_all();
  // The other one is passed over kPassedOverMax times, and then has its layer.
  const Passes expected{{3, 1}, {4, 1},  {5, 1},  {6, 1},  {7, 1},  {8, 1}, {9, 1}, {10, 1},
                        {2, 1}, {11, 1}, {12, 1}, {13, 1}, {14, 1}, {3, 1}, {4, 1}};
  CHECK(arithmetic.passes == expected);
}

TEST_CASE("other versions' experts are another pass") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker older(device.pool(), arithmetic, 3, 3), newer(device.pool(), arithmetic, 3, 3);
  newer.experts = std::make_shared<const ExpertSet>();
  older.join();
  newer.join();
  device.run_all();
  CHECK(arithmetic.passes == Passes{{3, 1}, {3, 1}});
  CHECK((older.ended && newer.ended));
}

TEST_CASE("nobody is passed over for ever, whatever comes at lower layers") {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    CAPTURE(seed);
    std::mt19937_64 random(seed);
    ManualDevice device;
    LoggingArithmetic arithmetic;
    std::vector<std::unique_ptr<Walker>> walkers;
    const std::size_t together = 2 + random() % 7;
    while (walkers.size() < 200) {
      std::size_t walking = 0;
      for (const auto& walker : walkers) walking += walker->ended ? 0 : 1;
      if (walking < together) {
        const auto from = static_cast<std::int32_t>(random() % 60);
        walkers.push_back(std::make_unique<Walker>(device.pool(), arithmetic, from, 60));
        walkers.back()->join();
      }
      if (random() % 2 == 0) (void)device.run_one();
    }
    device.run_all();
    for (const auto& walker : walkers) {
      CHECK(walker->ended);
      CHECK(walker->longest_wait <= kPassedOverMax + together + 1);
    }
  }
}

TEST_CASE("a device that has failed answers everything that waits") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker a(device.pool(), arithmetic, 3, 9), b(device.pool(), arithmetic, 5, 9);
  a.join();
  b.join();
  device.fail("an uncorrectable error");
  device.run_all();
  CHECK(arithmetic.passes.empty());
  CHECK(a.failed == "The device has failed: an uncorrectable error.");
  CHECK(b.failed == a.failed);
}

TEST_CASE("what a pass throws is told to all whose rows were in it") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker a(device.pool(), arithmetic, 3, 9), b(device.pool(), arithmetic, 3, 9);
  arithmetic.trouble = [] { throw std::bad_alloc(); };
  a.join();
  b.join();
  device.run_all();
  CHECK(a.failed == "A pass over experts could not be computed: memory is short.");
  CHECK(b.failed == a.failed);
  CHECK(device.failed().empty());
}

TEST_CASE("a device whose queue is full computes what waits at once") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker walker(device.pool(), arithmetic, 1, 50);
  device.refuses = true;
  walker.join();
  CHECK(walker.ended);
  CHECK(arithmetic.passes.size() == 50);
}

TEST_CASE("a work that leaves is in no pass, and hears nothing") {
  ManualDevice device;
  LoggingArithmetic arithmetic;
  Walker stays(device.pool(), arithmetic, 3, 3), leaves(device.pool(), arithmetic, 3, 3);
  const std::weak_ptr<int> kept = leaves.keep;
  stays.join();
  leaves.join();
  leaves.keep.reset();
  CHECK(device.pool().leave(leaves));
  CHECK(kept.expired());
  CHECK(!device.pool().leave(leaves));
  device.run_all();
  CHECK(arithmetic.passes == Passes{{3, 1}});
  CHECK(stays.ended);
  CHECK(!leaves.ended);
}

TEST_CASE("what waits is let go when the device ends") {
  LoggingArithmetic arithmetic;
  std::weak_ptr<int> kept;
  {
    ManualDevice device;
    Walker walker(device.pool(), arithmetic, 1, 1);
    kept = walker.keep;
    walker.join();
    walker.keep.reset();
    CHECK(!kept.expired());
    device.pool().clear();
    CHECK(kept.expired());
    device.run_all();
    CHECK(!walker.ended);
  }
}
