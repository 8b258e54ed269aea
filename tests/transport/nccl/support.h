#pragma once

#include <dlfcn.h>
#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <cstring>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "tests/patience.h"
#include "tests/transport/nccl/double.h"
#include "transport/collectives/nccl_collective.h"

namespace troupe::testing {

using namespace std::chrono_literals;

/// The double, as tests tell it what to do.
struct Double {
  static void set(const char* what) { find<decltype(&nccl_double_set)>("nccl_double_set")(what); }
  static void release() { find<decltype(&nccl_double_release)>("nccl_double_release")(); }
  static int alive() { return find<decltype(&nccl_double_alive)>("nccl_double_alive")(); }
  static int groups() { return find<decltype(&nccl_double_groups)>("nccl_double_groups")(); }

 private:
  template <class Function>
  static Function find(const char* name) {
    static void* const library = dlopen(TROUPE_NCCL_DOUBLE, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    REQUIRE(library != nullptr);
    return reinterpret_cast<Function>(dlsym(library, name));
  }
};

template <class T>
T must(Result<T> result) {
  REQUIRE_MESSAGE(result.ok(), (result.ok() ? "" : result.error().message));
  return std::move(*result);
}

inline bool eventually(const std::function<bool()>& condition, Duration limit = kTestPatience) {
  for (const auto end = now() + limit; now() < end;) {
    if (condition()) return true;
    std::this_thread::sleep_for(1ms);
  }
  return condition();
}

/// Carries messages between ranks: each up to `delay` late, by chance, in order per pair; but turns
/// that come from two threads of rank 0 may overtake each other.
class Wire {
 public:
  using Arrive = std::function<void(std::uint32_t from, std::uint32_t to, const Message&)>;
  Wire(Duration delay, std::uint64_t seed, Arrive arrive)
      : delay_(delay), random_(seed), arrive_(std::move(arrive)), thread_([this] { run(); }) {}
  ~Wire() { stop(); }
  /// Nothing arrives any more.
  void stop() {
    {
      std::lock_guard lock(mutex_);
      over_ = true;
      changed_.notify_all();
    }
    if (thread_.joinable()) thread_.join();
  }
  void send(std::uint32_t from, std::uint32_t to, Message message) {
    std::lock_guard lock(mutex_);
    const auto late =
        Duration(delay_.count() == 0 ? 0 : static_cast<Duration::rep>(random_()) % delay_.count());
    TimePoint due = now() + late;
    if (!std::holds_alternative<RankGo>(message)) {
      TimePoint& last = last_[{from, to}];
      due = last = std::max(last + 1ns, due);
    }
    under_way_.emplace(due, std::tuple(from, to, std::move(message)));
    changed_.notify_all();
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    while (!over_) {
      if (under_way_.empty()) {
        changed_.wait(lock);
      } else if (const TimePoint next = under_way_.begin()->first; next > now()) {
        changed_.wait_until(lock, next);
      } else {
        const auto [from, to, message] = std::move(under_way_.begin()->second);
        under_way_.erase(under_way_.begin());
        lock.unlock();
        arrive_(from, to, message);
        lock.lock();
      }
    }
  }

  const Duration delay_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937 random_;
  std::multimap<TimePoint, std::tuple<std::uint32_t, std::uint32_t, Message>> under_way_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, TimePoint> last_;
  bool over_ = false;
  const Arrive arrive_;
  std::thread thread_;
};

struct Setting {
  Duration wire_delay = 0ns;
  std::uint64_t seed = 1;
  nccl::Deadlines deadlines = {.form = 2s, .exchange = 300ms, .call = 50ms, .abort = 300ms};
  Duration retry = 20ms;
};

/// Tensor-parallel ranks that exchange through the double, each as if it were a process.
class NcclRanks {
 public:
  static constexpr std::uint32_t kReplica = 7;

  explicit NcclRanks(std::uint32_t size, const Setting& setting = {}) : size_(size) {
    const auto library = must(nccl::Library::load(TROUPE_NCCL_DOUBLE));
    const auto driver = must(nccl::Driver::load(TROUPE_NCCL_DOUBLE));
    for (std::uint32_t r = 0; r < size; ++r) {
      ranks_.push_back(std::make_unique<Rank>());
      Rank& rank = *ranks_.back();
      rank.watchdog = std::make_unique<nccl::Watchdog>(
          nccl::Watchdog::Options{setting.deadlines, [this](const std::string&) { ++stuck; }});
      rank.device = must(nccl::Device::open(driver, static_cast<int>(r)));
      rank.collective = NcclCollective::make(
          {{r, size}, kReplica, {library, rank.device, rank.watchdog.get()}, setting.retry},
          [this, r](std::uint32_t to, Message message) { wire_->send(r, to, std::move(message)); });
    }
    wire_ = std::make_unique<Wire>(
        setting.wire_delay, setting.seed,
        [this](std::uint32_t from, std::uint32_t to, const Message& message) {
          if (!gone(from) && !gone(to)) ranks_[to]->collective->arrived(from, message);
        });
  }
  ~NcclRanks() {
    for (const auto& rank : ranks_) rank->collective->close();
    Double::release();
    wire_->stop();
    ranks_.clear();  // their watchdogs wait for who may still send
  }

  NcclCollective& operator[](std::uint32_t rank) { return *ranks_[rank]->collective; }
  std::uint32_t size() const { return size_; }

  /// As a process that is killed: nothing of it is heard any more, and its connections end.
  void kill(std::uint32_t rank) {
    {
      std::lock_guard lock(mutex_);
      gone_ |= 1u << rank;
    }
    ranks_[rank]->collective->close();
  }

  using Came = Result<std::vector<Payload>>;
  /// What a rank gets of an exchange in which each sends the other `bytes_of(from, to)` bytes.
  using BytesOf = std::function<std::size_t(std::uint32_t from, std::uint32_t to)>;
  std::future<Came> begin(std::uint32_t rank, std::uint64_t step, std::uint32_t index,
                          const BytesOf& bytes_of, bool any = false) {
    PartsExchange e{StepId{step}, index, std::vector<Payload>(size_),
                    std::vector<std::size_t>(size_)};
    for (std::uint32_t other = 0; other < size_; ++other) {
      if (other == rank) continue;
      if (const std::size_t bytes = bytes_of(rank, other)) e.to[other] = part(step, index, bytes);
      e.bytes[other] = bytes_of(other, rank);
      if (any && e.bytes[other] > 0) e.bytes[other] = PartsExchange::kAny;
    }
    auto came = std::make_shared<std::promise<Came>>();
    auto future = came->get_future();
    (*this)[rank].start(std::move(e), [came](Came parts) { came->set_value(std::move(parts)); });
    return future;
  }

  /// All ranks exchange; true: all got what they should.
  bool exchange(std::uint64_t step, std::uint32_t index, const BytesOf& bytes_of,
                bool any = false) {
    std::vector<std::future<Came>> futures;
    for (std::uint32_t r = 0; r < size_; ++r)
      futures.push_back(begin(r, step, index, bytes_of, any));
    bool good = true;
    for (std::uint32_t r = 0; r < size_; ++r)
      good = ends_well(futures[r], r, step, index, bytes_of) && good;
    return good;
  }
  /// Waits for it; REQUIREs that it comes to an end.
  bool ends_well(std::future<Came>& future, std::uint32_t rank, std::uint64_t step,
                 std::uint32_t index, const BytesOf& bytes_of) {
    REQUIRE(future.wait_for(kTestPatience) == std::future_status::ready);
    const Came came = future.get();
    if (!came.ok()) return false;
    for (std::uint32_t from = 0; from < size_; ++from) {
      if (from == rank) continue;
      const Payload expected = part(step, index, bytes_of(from, rank));
      const Payload& found = (*came)[from];
      REQUIRE(found.bytes.size() == expected.bytes.size());
      if (!found.empty())
        REQUIRE(std::memcmp(found.bytes.data(), expected.bytes.data(), found.bytes.size()) == 0);
    }
    return true;
  }

  /// Exchanges until all go through NCCL; the steps' numbers begin at `step`.
  bool comes_up(std::uint64_t step) {
    const std::uint64_t before = (*this)[0].carried();
    return eventually([&] {
      (void)exchange(step++, 1, [](auto, auto) { return 4; });
      return (*this)[0].carried() > before;
    });
  }

  std::atomic<int> stuck{0};

 private:
  struct Rank {
    std::unique_ptr<nccl::Watchdog> watchdog;
    std::shared_ptr<nccl::Device> device;
    std::shared_ptr<NcclCollective> collective;
    ~Rank() {
      collective.reset();
      watchdog.reset();
    }
  };
  static Payload part(std::uint64_t step, std::uint32_t index, std::size_t bytes) {
    auto buffer = std::make_shared<Buffer>(bytes);
    for (std::size_t i = 0; i < bytes; ++i)
      buffer->data()[i] = static_cast<std::byte>(i * 7 + step * 31 + index);
    return Payload::of(std::move(buffer));
  }
  bool gone(std::uint32_t rank) {
    std::lock_guard lock(mutex_);
    return (gone_ >> rank & 1u) != 0;
  }

  const std::uint32_t size_;
  std::mutex mutex_;
  std::uint32_t gone_ = 0;  // guarded by mutex_; a bit a rank
  std::vector<std::unique_ptr<Rank>> ranks_;
  std::unique_ptr<Wire> wire_;
};

}  // namespace troupe::testing
