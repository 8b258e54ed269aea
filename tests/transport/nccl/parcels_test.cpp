/// Rows and outputs between 2 and 4 nodes through libnccl's double: each arrives once and whole,
/// whatever goes wrong, unless its node dies.
#include "tests/patience.h"
#include "tests/promises.h"
#include "tests/transport/nccl/support.h"
#include "transport/parcels/parcel_receiver.h"
#include "transport/parcels/parcel_sender.h"

namespace troupe::testing {
namespace {

constexpr std::size_t kRowBytes = 64;
constexpr nccl::Deadlines kShort = {.form = 2s, .exchange = 300ms, .call = 50ms, .abort = 300ms};

struct Mischievous {
  explicit Mischievous(const std::string& what = "") { Double::set(what.c_str()); }
  ~Mischievous() {
    Double::release();
    CHECK(eventually([] { return Double::alive() == 0; }));
    Double::set("");
  }
};

/// Nodes with a parcel sender and receiver for each of the others, as if each were a process.
class ParcelNodes {
 public:
  struct Options {
    nccl::Deadlines deadlines = kShort;
    Duration wire_delay = 200us;
    std::uint64_t seed = 1;
    std::size_t held_bytes_max = limits::kBulkReceivedBytesMax;
    bool keep = false;    ///< what comes is not released
    bool answer = false;  ///< rows are answered with an output
  };

  ParcelNodes(std::uint32_t size, const Options& options) : size_(size), options_(options) {
    const auto library = must(nccl::Library::load(TROUPE_NCCL_DOUBLE));
    const auto driver = must(nccl::Driver::load(TROUPE_NCCL_DOUBLE));
    for (std::uint32_t n = 0; n < size; ++n) {
      nodes_.push_back(std::make_unique<Node>());
      Node& node = *nodes_.back();
      node.watchdog = std::make_unique<nccl::Watchdog>(
          nccl::Watchdog::Options{options.deadlines, [this](const std::string&) { ++stuck; }});
      const auto device = must(nccl::Device::open(driver, static_cast<int>(n)));
      const nccl::Carrier carrier{library, device, node.watchdog.get()};
      for (std::uint32_t peer = 0; peer < size; ++peer) {
        const auto tell = [this, n, peer](Message message) {
          wire_->send(n, peer, std::move(message));
          return Status();
        };
        const auto fail = [this](const Error&) { ++failed; };
        node.senders.push_back(ParcelSender::make(
            {"node-" + std::to_string(peer), carrier, 20ms},
            {tell, [tell](const Envelope& e) { return tell(*e.message); }, fail}));
        node.receivers.push_back(ParcelReceiver::make(
            {carrier, options.held_bytes_max},
            {tell, [this, n, peer](const Envelope& e) { came(peer, n, *e.message); }, fail}));
      }
    }
    wire_ = std::make_unique<Wire>(options.wire_delay, options.seed,
                                   [this](std::uint32_t from, std::uint32_t to,
                                          const Message& message) { arrived(from, to, message); });
  }
  ~ParcelNodes() {
    for (std::uint32_t n = 0; n < size_; ++n) close(n);
    Double::release();
    wire_->stop();
    nodes_.clear();
  }

  ParcelSender& sender(std::uint32_t from, std::uint32_t to) { return *nodes_[from]->senders[to]; }

  /// Rows, numbered over all.
  std::uint64_t send(std::uint32_t from, std::uint32_t to, std::size_t rows) {
    const std::uint64_t call = ++calls_;
    Dispatch dispatch{call, PlacementVersion{1}, 0, static_cast<std::uint32_t>(rows), {{0, 1}}, {}};
    dispatch.payload = tensor(call, rows);
    post(from, to, message_of(std::move(dispatch)));
    return call;
  }
  /// How often it came, and its output if rows are answered.
  int times(std::uint64_t call) {
    std::lock_guard lock(mutex_);
    return came_[call];
  }
  bool all_came(Duration limit = kTestPatience) {
    return eventually(
        [&] {
          std::lock_guard lock(mutex_);
          for (std::uint64_t call = 1; call <= calls_; ++call)
            if (came_[call] < (options_.answer ? 2 : 1)) return false;
          return true;
        },
        limit);
  }
  /// None came twice, and none with other bytes.
  bool none_wrong() {
    std::lock_guard lock(mutex_);
    for (const auto& [call, times] : came_)
      if (times > (options_.answer ? 2 : 1)) return false;
    return wrong_ == 0;
  }
  /// Sends until that goes by NCCL.
  bool comes_up(std::uint32_t from, std::uint32_t to) {
    const std::uint64_t before = sender(from, to).sent();
    return eventually([&] {
      send(from, to, 2);
      return sender(from, to).sent() > before;
    });
  }
  bool all_come_up() {
    for (std::uint32_t a = 0; a < size_; ++a)
      for (std::uint32_t b = 0; b < size_; ++b)
        if (a != b && !comes_up(a, b)) return false;
    return all_came();
  }
  /// As a process that is killed, and whose end the others' bulk lane notices.
  void kill(std::uint32_t node) {
    {
      std::lock_guard lock(mutex_);
      gone_ |= 1u << node;
    }
    close(node);
    for (std::uint32_t n = 0; n < size_; ++n) {
      nodes_[n]->senders[node]->close();
      nodes_[n]->receivers[node]->close();
    }
  }
  void release() {
    std::lock_guard lock(mutex_);
    kept_.clear();
  }

  std::atomic<int> stuck{0}, failed{0};

 private:
  struct Node {
    std::vector<std::shared_ptr<ParcelSender>> senders;
    std::vector<std::shared_ptr<ParcelReceiver>> receivers;
    std::unique_ptr<nccl::Watchdog> watchdog;
  };

  static Payload tensor(std::uint64_t call, std::size_t rows) {
    auto buffer = std::make_shared<Buffer>(rows * kRowBytes);
    for (std::size_t i = 0; i < buffer->size(); ++i)
      buffer->data()[i] = static_cast<std::byte>(i * 7 + call * 31);
    return Payload::of(std::move(buffer));
  }
  void close(std::uint32_t node) {
    for (const auto& sender : nodes_[node]->senders) sender->close();
    for (const auto& receiver : nodes_[node]->receivers) receiver->close();
  }
  /// As NcclLane does.
  void post(std::uint32_t from, std::uint32_t to, const MessagePtr& message) {
    const auto sent = sender(from, to).send({address(from), address(to), message});
    if (!sent)
      wire_->send(from, to, *message);
    else if (!sent->ok())
      ++failed;
  }
  static Address address(std::uint32_t node) {
    return {NodeId{node + 1}, Incarnation{1}, {ActorKind::kExpertGroup, 0}};
  }
  void arrived(std::uint32_t from, std::uint32_t to, const Message& message) {
    {
      std::lock_guard lock(mutex_);
      if ((gone_ >> from & 1u) != 0 || (gone_ >> to & 1u) != 0) return;
    }
    if (const auto* parcel = std::get_if<Parcel>(&message))
      return nodes_[to]->receivers[from]->arrived(*parcel);
    if (const auto* news = std::get_if<ParcelGroup>(&message)) {
      nodes_[to]->senders[from]->heard(*news);
      return nodes_[to]->receivers[from]->heard(*news);
    }
    came(from, to, message);
  }
  void came(std::uint32_t from, std::uint32_t to, const Message& message) {
    const auto* rows = std::get_if<Dispatch>(&message);
    const auto* output = std::get_if<ExpertOutput>(&message);
    const std::uint64_t call = rows ? rows->call : output->call;
    const Payload& payload = rows ? rows->payload : output->payload;
    const std::size_t count = rows ? rows->rows : output->pairs;
    const Payload expected = tensor(call, count);
    {
      std::lock_guard lock(mutex_);
      ++came_[call];
      if (!std::ranges::equal(payload.bytes, expected.bytes)) ++wrong_;
      if (options_.keep) kept_.push_back(payload);
    }
    if (rows && options_.answer)
      post(to, from,
           message_of(ExpertOutput{call, static_cast<std::uint32_t>(count), tensor(call, count)}));
  }

  const std::uint32_t size_;
  const Options options_;
  std::atomic<std::uint64_t> calls_{0};
  std::mutex mutex_;
  // guarded by mutex_
  std::map<std::uint64_t, int> came_;
  std::vector<Payload> kept_;
  int wrong_ = 0;
  std::uint32_t gone_ = 0;  // a bit a node
  std::vector<std::unique_ptr<Node>> nodes_;
  std::unique_ptr<Wire> wire_;
};

/// Each node sends rows to the others, from two threads.
void send_all_over(ParcelNodes& nodes, std::uint32_t size, std::uint64_t seed, int times) {
  std::vector<std::thread> threads;
  for (std::uint32_t n = 0; n < 2 * size; ++n)
    threads.emplace_back([&, n] {
      std::mt19937_64 random(seed * 100 + n);
      for (int i = 0; i < times; ++i) {
        const std::uint32_t from = n % size;
        const auto to = static_cast<std::uint32_t>((from + 1 + random() % (size - 1)) % size);
        nodes.send(from, to, 1 + random() % 300);
        if (random() % 3 == 0)
          std::this_thread::sleep_for(std::chrono::microseconds(random() % 500));
      }
    });
  for (auto& thread : threads) thread.join();
}

TEST_CASE("rows and outputs go between all pairs, both ways, from several threads at once") {
  for (const std::uint32_t size : {2u, 4u}) {
    for (std::uint64_t seed = 1; seed <= 3; ++seed) {
      CAPTURE(size);
      CAPTURE(seed);
      const Mischievous calm("delay=300;seed=" + std::to_string(seed));
      ParcelNodes nodes(size, {.deadlines = {}, .seed = seed, .answer = true});
      REQUIRE(nodes.all_come_up());
      send_all_over(nodes, size, seed, 60);
      CHECK(nodes.all_came());
      CHECK(nodes.none_wrong());
      CHECK(nodes.failed == 0);
      std::uint64_t by_nccl = 0, resent = 0;
      for (std::uint32_t a = 0; a < size; ++a)
        for (std::uint32_t b = 0; b < size; ++b) {
          by_nccl += nodes.sender(a, b).sent();
          resent += nodes.sender(a, b).resent();
        }
      CHECK(by_nccl > std::uint64_t{1} * size * 60);  // some find the window full
      CHECK(resent == 0);
    }
  }
}

TEST_CASE("a communicator that breaks, lies or stalls loses no message and doubles none") {
  for (const std::string what : {"break=5;rank=0", "break=5;rank=1", "stall=5;rank=0",
                                 "stall=5;rank=1", "short=5;rank=0", "long=5;rank=0"}) {
    for (const std::uint32_t size : {2u, 4u}) {
      CAPTURE(what);
      CAPTURE(size);
      const Mischievous calm;
      ParcelNodes nodes(size, {});
      REQUIRE(nodes.all_come_up());
      Double::set(what.c_str());
      const TimePoint began = now();
      // What NCCL sends too little of would be made up for by the next, were there one.
      for (int i = 0; i < (what.starts_with("short") ? 5 : 12); ++i) nodes.send(0, 1, 10);
      CHECK(nodes.all_came());
      promised("messages come by the other lane", now() - began, 2s);
      CHECK(nodes.none_wrong());
      // A receiver that shuts its connection still reads what lay there.
      if (what != "break=5;rank=1") CHECK(nodes.sender(0, 1).resent() > 0);
      CHECK(nodes.comes_up(0, 1));
      CHECK(nodes.all_came());
      CHECK(nodes.none_wrong());
      CHECK(nodes.failed == 0);
      CHECK(nodes.stuck == 0);
    }
  }
}

TEST_CASE("a node that dies under load takes nothing of the others with it") {
  for (const bool noticed : {true, false}) {
    CAPTURE(noticed);
    const Mischievous calm(noticed ? "delay=200" : "quiet=1");
    ParcelNodes nodes(4, {});
    REQUIRE(nodes.all_come_up());
    std::vector<std::uint64_t> between_others;
    for (int i = 0; i < 60; ++i) {
      if (i == 30) nodes.kill(3);
      if (i < 30) nodes.send(0, 3, 100);
      between_others.push_back(nodes.send(0, 1, 100));
      between_others.push_back(nodes.send(2, 0, 100));
    }
    CHECK(eventually([&] {
      return std::ranges::all_of(between_others, [&](auto call) { return nodes.times(call) == 1; });
    }));
    CHECK(nodes.none_wrong());
    CHECK(nodes.sender(0, 1).resent() == 0);
    CHECK(nodes.stuck == 0);
    // Of four nodes' twelve directions six are left, with two ends each.
    CHECK(eventually([] { return Double::alive() == 12; }));
  }
}

const char* const kParcelCalls[] = {
    "ncclGetUniqueId", "ncclCommInitRankConfig", "ncclCommGetAsyncError",
    "ncclGroupStart",  "ncclGroupEnd",           "ncclSend",
    "ncclRecv",        "cuStreamCreate",         "cuStreamQuery",
    "cuMemHostAlloc",  "ncclCommAbort"};

TEST_CASE("an error of any call, at either end, loses no message") {
  for (const std::string call : kParcelCalls) {
    for (const int number : {1, 2, 5}) {
      for (const std::string rank : {"0", "1"}) {
        CAPTURE(call);
        CAPTURE(number);
        CAPTURE(rank);
        const Mischievous calm("fail=" + call + ":" + std::to_string(number) + ";rank=" + rank);
        ParcelNodes nodes(2, {});
        const TimePoint began = now();
        while (nodes.sender(0, 1).sent() < 12) {
          nodes.send(0, 1, 3);
          std::this_thread::sleep_for(1ms);
          REQUIRE(now() - began < kTestPatience);
        }
        CHECK(nodes.all_came());
        CHECK(nodes.none_wrong());
        CHECK(nodes.failed == 0);
      }
    }
  }
}

TEST_CASE("a call of NCCL's that hangs holds up no message for longer than the deadlines") {
  for (const std::string call : kParcelCalls) {
    CAPTURE(call);
    const Mischievous calm;
    ParcelNodes nodes(2, {});
    REQUIRE(nodes.comes_up(0, 1));
    Double::set(("hang=" + call + ":1;rank=1").c_str());
    Duration longest{0};
    for (int i = 0; i < 20; ++i) {
      const TimePoint began = now();
      nodes.send(0, 1, 3);
      longest = std::max(longest, now() - began);
    }
    promised("a send beside a call that hangs", longest, 50ms);
    CHECK(nodes.all_came());
    CHECK(nodes.none_wrong());
    CHECK(nodes.failed == 0);
  }
}

TEST_CASE("a receiver that holds too much of what came turns to the other lane") {
  const Mischievous calm;
  ParcelNodes nodes(2, {.deadlines = {}, .held_bytes_max = 100 * kRowBytes, .keep = true});
  REQUIRE(nodes.comes_up(0, 1));
  for (int i = 0; i < 30; ++i) nodes.send(0, 1, 10);
  CHECK(nodes.all_came());
  CHECK(nodes.none_wrong());
  CHECK(nodes.sender(0, 1).resent() > 0);
  nodes.release();
  CHECK(nodes.comes_up(0, 1));
}

TEST_CASE("no more than the window goes by NCCL while nothing is heard of the receiver") {
  const Mischievous calm;
  ParcelNodes nodes(2, {.deadlines = {}});
  REQUIRE(nodes.comes_up(0, 1));
  REQUIRE(nodes.all_came());
  Double::set("stall=1;rank=1");
  const std::uint64_t before = nodes.sender(0, 1).sent();
  for (std::size_t i = 0; i < 2 * limits::kParcelsUnheardMax; ++i) nodes.send(0, 1, 1);
  CHECK(nodes.sender(0, 1).sent() - before <= limits::kParcelsUnheardMax);
  CHECK(nodes.all_came());
  CHECK(nodes.none_wrong());
}

TEST_CASE("parcels out of their order, and news of communicators that are not, change nothing") {
  const Mischievous calm;
  ParcelNodes nodes(2, {.deadlines = {}});
  REQUIRE(nodes.comes_up(0, 1));
  REQUIRE(nodes.all_came());
  using State = ParcelGroup::State;
  for (const State state : {State::kFormed, State::kCame, State::kEnd, State::kBroken})
    for (const std::uint32_t group : {0u, 7u}) nodes.sender(0, 1).heard({group, state, 99});
  const std::uint64_t before = nodes.sender(0, 1).sent();
  nodes.send(0, 1, 3);
  CHECK(nodes.sender(0, 1).sent() == before + 1);
  CHECK(nodes.all_came());
  CHECK(nodes.sender(0, 1).resent() == 0);
}

}  // namespace
}  // namespace troupe::testing
