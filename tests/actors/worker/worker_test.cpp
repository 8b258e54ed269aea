#include "actors/worker/worker.h"

#include <doctest/doctest.h>

#include <atomic>
#include <condition_variable>
#include <mutex>

#include "actors/base/caf_host.h"
#include "actors/control/caf_system.h"
#include "tests/actors/mail_queue.h"
#include "tests/actors/worker/fake_sizes.h"
#include "tests/patience.h"

namespace troupe {
namespace {

using namespace std::chrono_literals;

constexpr NodeId kSelf{2}, kPeer{1};
constexpr Incarnation kHeadLife{50}, kLife{51}, kPeerLife{61};

/// What was called, by name, for the test to wait for.
class Calls {
 public:
  void add(const std::string& call) {
    std::lock_guard lock(mutex_);
    calls_.push_back(call);
    changed_.notify_all();
  }
  /// Whether the next call is that one.
  bool next(const std::string& call) {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kTestPatience, [&] { return !calls_.empty(); })) return false;
    const std::string found = calls_.front();
    calls_.erase(calls_.begin());
    CHECK(found == call);
    return found == call;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> calls_;  // guarded by mutex_
};

struct Link final : HeadLink {
  void listen(Events e) override { events = std::move(e); }
  void connect() override { calls.add("connect"); }
  Status send(const Envelope& envelope) override {
    REQUIRE(sent->put(Mail(envelope)).ok());
    return {};
  }
  void close() override { calls.add("close"); }

  Events events;
  Calls calls;
  std::shared_ptr<testing::MailQueue> sent = std::make_shared<testing::MailQueue>();
};

struct Lane final : BulkLane {
  void listen(BulkEvents& e) override { events = &e; }
  std::string address() const override { return "here"; }
  std::string describe() const override { return "a lane of the test"; }
  void identify(NodeId node, Incarnation incarnation) override {
    calls.add("identify " + to_string(node) + "#" + std::to_string(incarnation.value));
  }
  Status expect(const Peer& peer) override {
    calls.add("expect " + to_string(peer.id));
    return refuses ? Status(refused("a newer life is known")) : Status();
  }
  Status connect(const Peer& peer) override {
    calls.add("connect " + to_string(peer.id));
    return {};
  }
  void forget(NodeId node, Incarnation, bool fence) override {
    calls.add((fence ? "fence " : "forget ") + to_string(node));
  }
  void ask(NodeId, Incarnation) override {}
  std::vector<PeerTraffic> traffic() const override { return {}; }
  Status send(NodeId, Incarnation, const Envelope& envelope) override {
    REQUIRE(sent->put(Mail(envelope)).ok());
    return {};
  }

  BulkEvents* events = nullptr;
  std::atomic<bool> refuses{false};
  Calls calls;
  std::shared_ptr<testing::MailQueue> sent = std::make_shared<testing::MailQueue>();
};

struct Source final : WeightSource {
  explicit Source(Post& p) : post(p) {}
  void listen(const Ref<NodeAgentInbox>& a) override { agent = a; }
  void inspect(const std::string& folder) override {
    post.tell(agent, CheckpointInspected{
                         folder, InspectedCheckpoint{
                                     "abc", std::make_shared<const testing::FakeSizes>(), folder}});
  }
  void read(ReadOrder) override {}
  void build(std::shared_ptr<Preparation>) override {}
  void prove(std::vector<std::string>) override {}
  void prove_copies() override {}
  ProofReport proofs() const override { return {}; }
  void cancel() override {}
  void free(Garbage) override {}
  Post& post;
  Ref<NodeAgentInbox> agent;
};

/// A worker in a real host, between a head and peers that the test plays.
struct Stand {
  std::unique_ptr<CafSystem> caf = std::move(*CafSystem::make());
  Post post;
  Link link;
  Lane lane;
  Source source{post};
  Calls exits;
  std::unique_ptr<CafHost> host = std::make_unique<CafHost>(caf->system(), post);
  std::unique_ptr<Worker> worker;

  Stand() {
    WorkerSetup setup;
    setup.agent.head = "head:6379";
    setup.agent.numerics = {Numerics::kReference};
    setup.around.link = &link;
    setup.around.lane = &lane;
    setup.around.source = &source;
    setup.around.on_exit = [this](const WorkerExit& exit) { exits.add(exit.reason); };
    worker = std::make_unique<Worker>(*host, std::move(setup));
  }
  ~Stand() {
    worker->end();
    host.reset();
  }

  template <class T>
  void head_says(T message) {
    link.events.message({{kHeadNode, kHeadLife, {ActorKind::kSupervisor, 0}},
                         {kSelf, kLife, {ActorKind::kNodeAgent, 0}},
                         message_of(std::move(message))});
  }
  /// The next message of that kind that went to the head.
  template <class T>
  std::optional<Envelope> told() {
    while (const auto mail = link.sent->next())
      if (std::holds_alternative<T>(*mail->envelope.message)) return mail->envelope;
    return std::nullopt;
  }
  void join() {
    REQUIRE(link.calls.next("connect"));
    link.events.up({});
    head_says(Greeting{kProtocol, "c1", "0.1.0", "/models/m", "abc", std::nullopt});
    const auto joins = told<Join>();
    REQUIRE(joins);
    const auto& join = std::get<Join>(*joins->message);
    CHECK(join.fabric_address == "here");
    CHECK(join.fabric_description == "a lane of the test");
    head_says(Welcome{kSelf, kLife, 60'000});
    REQUIRE(lane.calls.next("identify node-2#51"));
  }
  void load_with_peer() {
    Load load;
    load.placement.version = PlacementVersion{1};
    load.placement.replicas = {{0, kSelf, 1}};  // so that a route leads to the peer
    load.placement.shards = {{0, 0, 0, 0, 1, {kPeer, 0}}};
    load.peers = {{kPeer, kPeerLife, "there", {}}};
    head_says(load);
    REQUIRE(lane.calls.next("expect node-1"));
  }
};

TEST_CASE("a worker joins, is reached at its new address, and leaves under it") {
  Stand s;
  s.join();
  s.worker->leave("SIGTERM");
  const auto leave = s.told<Leave>();
  REQUIRE(leave);
  CHECK(leave->from == Ref<NodeAgentInbox>(kSelf, kLife).address);
  s.link.events.down("closed", false);
  CHECK(s.exits.next("left the cluster"));
  CHECK(s.link.calls.next("close"));
  CHECK(!s.post.find(Ref<NodeAgentInbox>(kSelf, kLife).address));
}

TEST_CASE("a peer that cannot be expected is one that cannot be reached") {
  Stand s;
  s.join();
  s.lane.refuses = true;
  s.load_with_peer();
  const auto news = s.told<PeerUnreachable>();
  REQUIRE(news);
  CHECK(std::get<PeerUnreachable>(*news->message).reason == "a newer life is known");
}

TEST_CASE("what a peer's lane brings is delivered, but not in another's name") {
  Stand s;
  s.join();
  s.load_with_peer();
  s.lane.events->on_peer_up(kPeer, kPeerLife);
  const Address mine{kSelf, kLife, {ActorKind::kLayerShard, 5}};
  const auto mailbox = std::make_shared<testing::MailQueue>();
  s.post.attach(mine, mailbox);
  const Address theirs{kPeer, kPeerLife, {ActorKind::kLayerShard, 7}};
  const Address strange{NodeId{9}, kPeerLife, {ActorKind::kLayerShard, 7}};
  s.lane.events->on_envelope(kPeer, kPeerLife, {strange, mine, message_of(StepAbort{})});
  s.lane.events->on_envelope(kPeer, kPeerLife, {theirs, mine, message_of(StepAbort{})});
  const auto got = mailbox->next();
  REQUIRE(got);
  CHECK(got->envelope.from == theirs);
  // And the way back is by the lane, as long as it is up.
  s.post.send({mine, theirs, message_of(StepAbort{})});
  CHECK(s.lane.sent->next().has_value());
  s.lane.events->on_peer_down(kPeer, kPeerLife, {"reset"});
  s.post.send({mine, theirs, message_of(StepAbort{})});
  const auto back = mailbox->next();
  REQUIRE(back);
  CHECK(std::holds_alternative<Undeliverable>(*back->envelope.message));
  const auto news = s.told<PeerUnreachable>();
  REQUIRE(news);
  CHECK(std::get<PeerUnreachable>(*news->message).reason == "reset");
}

TEST_CASE("two workers of one host have addresses of their own there") {
  Stand s;
  Link link;
  Source source(s.post);
  WorkerSetup setup;
  setup.around.link = &link;
  setup.around.source = &source;
  setup.around.on_exit = [](const WorkerExit&) {};
  Worker other(*s.host, std::move(setup));
  CHECK(other.agent() != s.worker->agent());
  CHECK(source.agent == other.agent());
  CHECK(link.calls.next("connect"));
  other.end();
  CHECK(s.host->wait_ended(other.agent().address, kTestPatience));
}

TEST_CASE("what comes after its end is dropped") {
  Stand s;
  s.join();
  s.worker->end();
  REQUIRE(s.host->wait_ended(s.worker->agent().address, kTestPatience));
  CHECK(!s.post.find(Ref<NodeAgentInbox>(kSelf, kLife).address));
  s.link.events.down("reset", false);
  s.lane.events->on_peer_up(kPeer, kPeerLife);
  s.head_says(Stop{"late"});
  CHECK(!s.link.sent->next(50ms).has_value());
}

}  // namespace
}  // namespace troupe
