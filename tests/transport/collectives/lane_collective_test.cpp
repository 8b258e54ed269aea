/// Exchanges among 2, 4 and 8 tensor-parallel ranks: by hand, and over real fabrics.
#include "transport/collectives/lane_collective.h"

#include <doctest/doctest.h>

#include <atomic>
#include <future>
#include <numeric>
#include <optional>
#include <thread>

#include "runtime/limits.h"
#include "tests/promises.h"
#include "tests/transport/fabric/support.h"
#include "transport/codec.h"

namespace troupe::transport::testing {
namespace {

constexpr std::uint32_t kReplica = 7;

Payload floats(const std::vector<float>& values) {
  auto buffer = std::make_shared<Buffer>(values.size() * sizeof(float));
  std::memcpy(buffer->data(), values.data(), buffer->size());
  return Payload::of(std::move(buffer));
}

std::vector<float> numbers(const Payload& payload) {
  std::vector<float> values(payload.bytes.size() / sizeof(float));
  std::memcpy(values.data(), payload.bytes.data(), payload.bytes.size());
  return values;
}

/// One rank on a node of its own.
struct RankNode final : FabricEvents {
  RankNode(std::uint32_t r, std::uint32_t size)
      : rank(r), collective({r, size}, kReplica, [this](std::uint32_t to, RankPart part) {
          send(to, std::move(part));
        }) {
    FabricOptions options;
    options.self = key(rank + 1);
    auto made = make_libfabric(options, *this);
    REQUIRE(made.ok());
    fabric = std::move(*made);
  }
  ~RankNode() override { fabric.reset(); }

  void send(std::uint32_t to, RankPart part) {
    const Payload numbers = part.payload;
    auto header = encode({{key(rank + 1).node, Incarnation{1}, {ActorKind::kLayerShard, rank}},
                          {key(to + 1).node, Incarnation{1}, {ActorKind::kRank, to}},
                          message_of(std::move(part))});
    REQUIRE(header.ok());
    auto bytes = std::make_shared<const std::vector<std::byte>>(std::move(*header));
    const Status sent = fabric->send(key(to + 1), {{bytes, std::span(*bytes)}, numbers});
    if (!sent.ok()) lost = true;
  }

  void on_frame(PeerKey from, Frame frame) override {
    const auto envelope = decode(frame.header.bytes, frame.payload);
    REQUIRE(envelope.ok());
    collective.arrived(from.node.value - 1, std::get<RankPart>(*envelope->message));
  }
  void on_peer_up(PeerKey) override { ++up; }
  /// As a shard does that hears of it.
  void on_peer_down(PeerKey, LinkEnd) override {
    lost = true;
    collective.forget(StepId{1});
  }

  /// Sends and waits; none if another rank is gone.
  std::optional<std::vector<Payload>> exchange(PartsExchange e) {
    auto came = std::make_shared<std::promise<std::vector<Payload>>>();
    auto future = came->get_future();
    collective.start(std::move(e), [came](Result<std::vector<Payload>> parts) {
      REQUIRE(parts.ok());
      came->set_value(std::move(*parts));
    });
    came.reset();
    try {
      return future.get();
    } catch (const std::future_error&) {
      return std::nullopt;  // the promise went with what waited
    }
  }

  const std::uint32_t rank;
  LaneCollective collective;
  std::atomic<std::uint32_t> up{0};
  std::atomic<bool> lost{false};
  std::unique_ptr<Fabric> fabric;
};

std::vector<std::unique_ptr<RankNode>> connected(std::uint32_t size) {
  std::vector<std::unique_ptr<RankNode>> ranks;
  for (std::uint32_t r = 0; r < size; ++r) ranks.push_back(std::make_unique<RankNode>(r, size));
  for (std::uint32_t low = 0; low < size; ++low)
    for (std::uint32_t high = low + 1; high < size; ++high) {
      REQUIRE(
          ranks[high]->fabric->expect(key(low + 1), ranks[low]->fabric->address(), token(1)).ok());
      REQUIRE(ranks[low]
                  ->fabric->connect(key(high + 1), ranks[high]->fabric->address(), token(1))
                  .ok());
    }
  for (auto& rank : ranks) REQUIRE(eventually([&] { return rank->up == size - 1; }));
  return ranks;
}

/// Row i of a rank's part of a sum.
float number(std::uint32_t rank, std::size_t i, std::uint32_t round) {
  return std::ldexp(1.0f + static_cast<float>(i % 97) / 97.0f,
                    static_cast<int>((rank * 7 + i + round) % 40)) *
         (i % 2 == 0 ? 1.0f : -1.0f);
}

float join(std::vector<float> parts) {
  for (std::size_t left = parts.size(); left > 1; left /= 2)
    for (std::size_t p = 0; p < left / 2; ++p) parts[p] = parts[2 * p] + parts[2 * p + 1];
  return parts[0];
}

TEST_CASE("a reduce-scatter and an all-gather among ranks have the sums of the fixed tree") {
  for (const std::uint32_t size : {2u, 4u, 8u}) {
    CAPTURE(size);
    const auto ranks = connected(size);
    const std::size_t rows = 3 * size + 1;
    for (const std::size_t width : {1ul, 1000ul, 70000ul}) {
      if (width * rows * size > 12u << 20) continue;
      std::vector<std::vector<float>> results(size);
      std::vector<std::thread> threads;
      for (std::uint32_t r = 0; r < size; ++r)
        threads.emplace_back([&, r] {
          const auto first = [&](std::uint32_t rank) { return rows * rank / size; };
          const StepId step{width};
          std::vector<float> own(rows * width);
          for (std::size_t i = 0; i < own.size(); ++i) own[i] = number(r, i, 0);
          const Payload whole = floats(own);
          PartsExchange scatter{step, 1, std::vector<Payload>(size),
                                std::vector<std::size_t>(size)};
          const std::size_t own_bytes = (first(r + 1) - first(r)) * width * sizeof(float);
          for (std::uint32_t to = 0; to < size; ++to) {
            if (to == r) continue;
            scatter.to[to] = {whole.owner, whole.bytes.subspan(first(to) * width * sizeof(float),
                                                               (first(to + 1) - first(to)) * width *
                                                                   sizeof(float))};
            scatter.bytes[to] = own_bytes;
          }
          const auto parts = ranks[r]->exchange(std::move(scatter));
          REQUIRE(parts.has_value());
          std::vector<float> sums(own_bytes / sizeof(float));
          for (std::size_t i = 0; i < sums.size(); ++i) {
            std::vector<float> of(size);
            for (std::uint32_t from = 0; from < size; ++from)
              of[from] = from == r ? own[first(r) * width + i] : numbers((*parts)[from])[i];
            if (width > 1000 && i > 50) break;
            sums[i] = join(of);
          }
          PartsExchange gather{step, 2, std::vector<Payload>(size), std::vector<std::size_t>(size)};
          for (std::uint32_t to = 0; to < size; ++to) {
            if (to == r) continue;
            gather.to[to] = floats(sums);
            gather.bytes[to] = (first(to + 1) - first(to)) * width * sizeof(float);
          }
          const auto all = ranks[r]->exchange(std::move(gather));
          REQUIRE(all.has_value());
          for (std::uint32_t from = 0; from < size; ++from)
            for (const float v : from == r ? sums : numbers((*all)[from])) results[r].push_back(v);
          ranks[r]->collective.forget(step);
        });
      for (auto& thread : threads) thread.join();
      for (std::uint32_t r = 0; r < size; ++r) {
        REQUIRE(results[r].size() == rows * width);
        CHECK(results[r] == results[0]);
        CHECK(ranks[r]->collective.steps() == 0);
      }
      for (std::size_t i = 0; i < std::min<std::size_t>(width, 40); ++i) {
        std::vector<float> of(size);
        for (std::uint32_t from = 0; from < size; ++from) of[from] = number(from, i, 0);
        CHECK(results[0][i] == join(of));
      }
    }
  }
}

TEST_CASE("when a rank dies all others stop waiting at once") {
  constexpr std::uint32_t kSize = 4;
  auto ranks = connected(kSize);
  std::vector<std::thread> threads;
  std::atomic<int> gave_up{0};
  for (std::uint32_t r = 0; r + 1 < kSize; ++r)
    threads.emplace_back([&, r] {
      PartsExchange e{StepId{1}, 1, std::vector<Payload>(kSize), std::vector<std::size_t>(kSize)};
      for (std::uint32_t to = 0; to < kSize; ++to) {
        if (to == r) continue;
        e.to[to] = floats({1, 2, 3});
        e.bytes[to] = 3 * sizeof(float);
      }
      if (!ranks[r]->exchange(std::move(e))) ++gave_up;
    });
  std::this_thread::sleep_for(50ms);
  CHECK(gave_up == 0);
  const TimePoint died = now();
  ranks.back()->fabric.reset();
  for (auto& thread : threads) thread.join();
  CHECK(gave_up == kSize - 1);
  promised("ranks give up after a death", now() - died, 2s);
  for (std::uint32_t r = 0; r + 1 < kSize; ++r) CHECK(ranks[r]->lost);
}

// --- By hand ------------------------------------------------------------------------------------

/// The second of two ranks.
struct Alone {
  Alone()
      : collective({1, 2}, kReplica, [this](std::uint32_t, RankPart p) { sent.push_back(p); }) {}

  void start(std::uint64_t step, std::uint32_t index, std::size_t bytes = 12) {
    collective.start({StepId{step}, index, {floats({4}), {}}, {bytes, 0}},
                     [this](auto parts) { came.push_back(std::move(parts)); });
  }
  void arrives(std::uint64_t step, std::uint32_t index, std::vector<float> values = {1, 2, 3}) {
    collective.arrived(0, {kReplica, StepId{step}, index, floats(values)});
  }

  std::vector<RankPart> sent;
  std::vector<Result<std::vector<Payload>>> came;
  LaneCollective collective;
};

TEST_CASE("parts count once, for their exchange, whenever they come") {
  Alone a;
  a.arrives(1, 1);
  a.arrives(1, 2, {7, 8, 9});  // the other rank is ahead
  a.arrives(1, 1, {0, 0, 0});  // twice
  a.start(1, 1);
  REQUIRE(a.came.size() == 1);
  CHECK(numbers((*a.came[0])[0]) == std::vector<float>{1, 2, 3});
  REQUIRE(a.sent.size() == 1);
  CHECK(a.sent[0].exchange == 1);
  a.arrives(1, 1);  // late
  a.start(1, 2);
  REQUIRE(a.came.size() == 2);
  CHECK(numbers((*a.came[1])[0]) == std::vector<float>{7, 8, 9});
  a.start(1, 3);
  CHECK(a.came.size() == 2);
  a.arrives(2, 3);  // another step's
  a.collective.arrived(0, {kReplica + 1, StepId{1}, 3, floats({1, 2, 3})});
  a.collective.arrived(5, {kReplica, StepId{1}, 3, floats({1, 2, 3})});
  CHECK(a.came.size() == 2);
  a.arrives(1, 3);
  CHECK(a.came.size() == 3);
}

TEST_CASE("a part of another length is an error") {
  Alone a;
  a.start(1, 1);
  a.arrives(1, 1, {1, 2});
  REQUIRE(a.came.size() == 1);
  REQUIRE_FALSE(a.came[0].ok());
  CHECK(a.came[0].error().code == ErrorCode::kCorrupt);
}

TEST_CASE("nothing is kept of steps that are over, and little of those that never begin") {
  Alone a;
  a.start(1, 1);
  CHECK(a.collective.forget(StepId{1}));
  CHECK_FALSE(a.collective.forget(StepId{1}));
  a.arrives(1, 1);
  CHECK(a.collective.steps() == 0);
  a.start(1, 2);
  CHECK(a.came.empty());
  for (std::uint64_t step = 10; step < 10 + 5 * limits::kStepsInFlightMax; ++step)
    a.arrives(step, 1);
  CHECK(a.collective.steps() == limits::kStepsInFlightMax);
  const std::uint64_t newest = 9 + 5 * limits::kStepsInFlightMax;
  a.start(newest, 1);
  CHECK(a.came.size() == 1);
  a.arrives(newest, 2 + limits::kExchangesAheadMax);  // nobody is so far ahead
  a.collective.close();
  CHECK(a.collective.steps() == 0);
  a.arrives(newest + 1, 1);
  CHECK(a.collective.steps() == 0);
}

}  // namespace
}  // namespace troupe::transport::testing
