/// Exchanges among 2, 4 and 8 ranks through libnccl's double: in order, whatever comes when; and
/// what happens when a rank, a connection or a call goes wrong.
#include "tests/patience.h"
#include "tests/promises.h"
#include "tests/transport/nccl/support.h"

namespace troupe::testing {
namespace {

std::size_t same(std::uint32_t, std::uint32_t) { return 1000; }
/// Some send nothing to some.
std::size_t uneven(std::uint32_t from, std::uint32_t to) {
  return (from + 2 * to) % 3 == 0 ? 0 : 10 + from * 1000 + to;
}

struct Rested {
  explicit Rested(const char* what = "") { Double::set(what); }
  ~Rested() {
    Double::release();
    CHECK(eventually([] { return Double::alive() == 0; }));
    Double::set("");
  }
};

/// Each rank's steps come to their exchanges by chance in an order of its own.
void run_steps(NcclRanks& ranks, std::uint64_t seed, std::uint64_t steps, std::uint32_t exchanges) {
  struct Step {
    std::uint64_t id;
    std::uint32_t index = 0;
    std::future<NcclRanks::Came> came{};
  };
  std::atomic<int> good{0};
  std::vector<std::thread> threads;
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank)
    threads.emplace_back([&, rank] {
      std::mt19937_64 random(seed * 100 + rank);
      std::vector<Step> open;
      for (std::uint64_t id = 1; id <= steps; ++id) open.push_back({seed * 1000 + id});
      while (!open.empty()) {
        Step& step = open[random() % open.size()];
        const auto bytes = [&](std::uint32_t from, std::uint32_t to) {
          return uneven(from, to) * (step.index % 3) + step.id % 5;
        };
        if (step.came.valid()) {
          if (step.came.wait_for(100us) != std::future_status::ready) continue;
          if (ranks.ends_well(step.came, rank, step.id, step.index, bytes)) ++good;
        }
        if (step.index++ == exchanges) {
          ranks[rank].forget(StepId{step.id});
          std::swap(step, open.back());
          open.pop_back();
          continue;
        }
        if (random() % 4 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 300));
        step.came = ranks.begin(rank, step.id, step.index, bytes, step.index % 2 == 0);
      }
    });
  for (auto& thread : threads) thread.join();
  CHECK(good == static_cast<int>(ranks.size() * steps * exchanges));
}

TEST_CASE("steps in flight exchange through one communicator, whoever comes to them when") {
  for (const std::uint32_t size : {2u, 4u, 8u}) {
    for (std::uint64_t seed = 1; seed <= (size == 2 ? 6u : 2u); ++seed) {
      CAPTURE(size);
      CAPTURE(seed);
      const Rested rested(("delay=300,seed=" + std::to_string(seed)).c_str());
      NcclRanks ranks(size, {.wire_delay = 200us, .seed = seed, .deadlines = {}});
      REQUIRE(ranks.comes_up(1));
      const std::uint64_t by_messages = ranks[0].carried_by_messages();
      run_steps(ranks, seed, 5, 8);
      CHECK(ranks[0].carried_by_messages() == by_messages);
      for (std::uint32_t r = 0; r < size; ++r) CHECK(ranks[r].carried() == ranks[0].carried());
    }
  }
}

TEST_CASE("a part as long as a step's largest goes through") {
  const Rested rested;
  NcclRanks ranks(2, {.deadlines = {}});
  REQUIRE(ranks.comes_up(1));
  CHECK(ranks.exchange(1000, 1, [](auto from, auto) { return (8u << 20) + from; }));
}

TEST_CASE("exchanges go by messages until the communicator is formed") {
  const Rested rested("hang=ncclCommInitRankConfig:1;rank=1");
  NcclRanks ranks(2, {.deadlines = {}});
  CHECK(ranks.exchange(1, 1, uneven));
  CHECK(ranks.exchange(1, 2, uneven, true));
  CHECK(ranks[0].carried() == 0);
  CHECK(ranks[1].carried_by_messages() == 2);
  Double::release();
  CHECK(ranks.comes_up(10));
}

TEST_CASE("when a rank dies the others hear an error") {
  for (const std::uint32_t size : {2u, 4u, 8u}) {
    for (const bool noticed : {true, false}) {
      CAPTURE(size);
      CAPTURE(noticed);
      // A killed peer's connections are silent on some networks.
      const Rested rested(noticed ? "" : "quiet=1");
      NcclRanks ranks(size);
      REQUIRE(ranks.comes_up(1));
      Double::set(noticed ? "stall=1;rank=1" : "quiet=1;stall=1;rank=1");
      std::vector<std::future<NcclRanks::Came>> futures;
      for (std::uint32_t r = 0; r < size; ++r) futures.push_back(ranks.begin(r, 1000, 1, same));
      REQUIRE(eventually([] { return Double::groups() > 0; }));
      const TimePoint died = now();
      ranks.kill(size - 1);
      for (std::uint32_t r = 0; r + 1 < size; ++r)
        CHECK_FALSE(ranks.ends_well(futures[r], r, 1000, 1, same));
      promised("ranks give up after a death", now() - died, 2s);
      CHECK(ranks.stuck == 0);
    }
  }
}

TEST_CASE("a rank that cannot be reached ends the exchanges of all at once") {
  const Rested rested;
  NcclRanks ranks(4, {.deadlines = {}});
  REQUIRE(ranks.comes_up(1));
  Double::set("stall=1;rank=3");
  std::vector<std::future<NcclRanks::Came>> futures;
  for (std::uint32_t r = 0; r < 4; ++r) futures.push_back(ranks.begin(r, 1000, 1, same));
  REQUIRE(eventually([] { return Double::groups() > 0; }));
  const TimePoint began = now();
  ranks[2].lost("A rank cannot be reached.");
  for (std::uint32_t r = 0; r < 4; ++r) CHECK_FALSE(ranks.ends_well(futures[r], r, 1000, 1, same));
  promised("ranks give up a rank that cannot be reached", now() - began, 1s);
  CHECK(ranks.comes_up(2000));
}

TEST_CASE("a group that breaks, lies or stalls is an error for all, and another one follows") {
  for (const std::string what : {"break=3", "stall=3", "short=3", "long=3"}) {
    for (const std::uint32_t size : {2u, 4u}) {
      CAPTURE(what);
      CAPTURE(size);
      const Rested rested;
      NcclRanks ranks(size);
      REQUIRE(ranks.comes_up(1));
      Double::set((what + ";rank=1").c_str());
      CHECK(ranks.exchange(1000, 1, same));
      CHECK(ranks.exchange(1000, 2, same));
      const TimePoint began = now();
      CHECK_FALSE(ranks.exchange(1000, 3, same));
      promised("an exchange is given up", now() - began, 2s);
      // The step is given up, and the next one may not wait for a communicator.
      for (std::uint32_t r = 0; r < size; ++r) ranks[r].forget(StepId{1000});
      CHECK(ranks.comes_up(2000));
      CHECK(ranks.stuck == 0);
    }
  }
}

const std::string kCalls[] = {"ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError",
                              "ncclGroupStart",  "ncclGroupEnd",           "ncclSend",
                              "ncclRecv",        "cuStreamCreate",         "cuStreamQuery",
                              "cuMemHostAlloc"};

TEST_CASE("an error of any call ends in time, and leaves the ranks able to go on") {
  for (const std::string& call : kCalls) {
    for (const int number : {1, 2, 5}) {
      CAPTURE(call);
      CAPTURE(number);
      const Rested rested(
          ("fail=" + call + ":" + std::to_string(number) + ";rank=0").c_str());
      NcclRanks ranks(2);
      const TimePoint began = now();
      // A step after the other is tried, as a replica does, until all have gone through NCCL.
      int errors = 0;
      for (std::uint64_t step = 1; ranks[1].carried() < 8; ++step) {
        for (std::uint32_t index = 1; index <= 2; ++index)
          if (!ranks.exchange(step, index, same)) {
            ++errors;
            break;
          }
        for (std::uint32_t r = 0; r < 2; ++r) ranks[r].forget(StepId{step});
        REQUIRE(now() - began < kTestPatience);
      }
      CHECK(errors <= 1);
      CHECK(ranks.stuck == 0);
    }
  }
}

TEST_CASE("a call that hangs keeps nobody waiting, and ends the process if even the abort hangs") {
  for (const std::string& call : kCalls) {
    CAPTURE(call);
    const Rested rested;
    NcclRanks ranks(2);
    REQUIRE(ranks.comes_up(1));
    Double::set(("hang=" + call + ":1;rank=1").c_str());
    const TimePoint began = now();
    for (std::uint64_t step = 1000; step < 1010; ++step) {
      (void)ranks.exchange(step, 1, same);
      for (std::uint32_t r = 0; r < 2; ++r) ranks[r].forget(StepId{step});
    }
    promised("ten steps beside a call that hangs", now() - began, 4s);
  }
  const Rested rested;
  NcclRanks ranks(2);
  REQUIRE(ranks.comes_up(1));
  Double::set("stall=1;hang=ncclCommAbort:1;rank=1");
  CHECK_FALSE(ranks.exchange(1000, 1, same));
  CHECK(eventually([&] { return ranks.stuck == 1; }));
}

TEST_CASE("parts of other lengths than were awaited are an error for all, and NCCL goes on") {
  const Rested rested;
  NcclRanks ranks(2, {.deadlines = {}});
  REQUIRE(ranks.comes_up(1));
  const auto begin_with = [&](std::size_t sent, std::size_t awaited, std::uint64_t step) {
    auto first = ranks.begin(0, step, 1, [&](auto, auto) { return sent; });
    auto second = ranks.begin(1, step, 1,
                              [&](std::uint32_t from, auto) { return from == 0 ? awaited : sent; });
    return std::pair(first.get(), second.get());
  };
  for (const auto& [sent, awaited] : {std::pair(10, 12), std::pair(12, 10), std::pair(10, 0)}) {
    const auto [first, second] =
        begin_with(static_cast<std::size_t>(sent), static_cast<std::size_t>(awaited),
                   static_cast<std::uint64_t>(100 + sent * 20 + awaited));
    REQUIRE_FALSE(first.ok());
    REQUIRE_FALSE(second.ok());
    CHECK(first.error().code == ErrorCode::kCorrupt);
    CHECK(second.error().code == ErrorCode::kCorrupt);
  }
  const std::uint64_t before = ranks[0].carried();
  CHECK(ranks.exchange(2000, 1, same));
  CHECK(ranks[0].carried() == before + 1);
}

TEST_CASE("who forgets a step still takes part in what the others wait for") {
  const Rested rested;
  NcclRanks ranks(2, {.deadlines = {}});
  REQUIRE(ranks.comes_up(1));
  auto forgotten = ranks.begin(1, 1000, 1, same);
  CHECK(ranks[1].forget(StepId{1000}));
  CHECK_FALSE(ranks[1].forget(StepId{1000}));
  auto other = ranks.begin(0, 1000, 1, same);
  CHECK(ranks.ends_well(other, 0, 1000, 1, same));
  CHECK_THROWS_AS(forgotten.get(), std::future_error);  // it never heard
  // Rank 0 deals out no turn for a step that it has forgotten, and tells whoever comes.
  auto first = ranks.begin(0, 1001, 1, same);
  CHECK(ranks[0].forget(StepId{1001}));
  auto second = ranks.begin(1, 1001, 1, same);
  const std::uint64_t before = ranks[0].carried();
  CHECK(ranks.exchange(1002, 1, same));
  CHECK(ranks[0].carried() == before + 1);
  CHECK_FALSE(ranks.ends_well(second, 1, 1001, 1, same));
  CHECK_FALSE(ranks[1].forget(StepId{1001}));
}

TEST_CASE("what a rank has for a step that is forgotten is let go, whoever forgets it first") {
  const Rested rested;
  NcclRanks ranks(3, {.deadlines = {}});
  REQUIRE(ranks.comes_up(1));
  // The last rank never comes to these exchanges, so they have no turn.
  for (std::uint64_t step = 1000; step < 1020; ++step) {
    std::vector<std::future<NcclRanks::Came>> waiting;
    for (std::uint32_t r = 0; r < 2; ++r) waiting.push_back(ranks.begin(r, step, 1, same));
    const std::uint32_t first = step % 2;
    ranks[first].forget(StepId{step});
    ranks[1 - first].forget(StepId{step});
  }
  CHECK(eventually([&] { return ranks[0].pending() + ranks[1].pending() == 0; }));
  const std::uint64_t before = ranks[0].carried();
  CHECK(ranks.exchange(2000, 1, same));
  CHECK(ranks[0].carried() == before + 1);
}

TEST_CASE("who closes hears nothing any more, and keeps no communicator") {
  const Rested rested;
  NcclRanks ranks(2);
  REQUIRE(ranks.comes_up(1));
  auto waiting = ranks.begin(1, 1000, 1, same);
  ranks[1].close();
  CHECK_THROWS_AS(waiting.get(), std::future_error);
  ranks[0].close();
  CHECK(eventually([] { return Double::alive() == 0; }));
  ranks.begin(0, 1001, 1, same);
  CHECK(Double::alive() == 0);
}

}  // namespace
}  // namespace troupe::testing
