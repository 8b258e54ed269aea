#include "actors/company/post.h"

#include <doctest/doctest.h>

#include <condition_variable>
#include <deque>
#include <future>
#include <mutex>

#include "actors/control/caf_system.h"

using namespace troupe;
using namespace std::chrono_literals;

namespace {

/// What an actor has received.
struct Inbox {
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Envelope> received;

  std::optional<Envelope> take() {
    std::unique_lock lock(mutex);
    if (!changed.wait_for(lock, 5s, [&] { return !received.empty(); })) return std::nullopt;
    Envelope e = received.front();
    received.pop_front();
    return e;
  }
  bool empty() {
    std::lock_guard lock(mutex);
    return received.empty();
  }
};

class Recorder : public ActorBody {
 public:
  explicit Recorder(Inbox& inbox) : inbox_(inbox) {}
  void on_message(const Envelope& envelope) override {
    std::lock_guard lock(inbox_.mutex);
    inbox_.received.push_back(envelope);
    inbox_.changed.notify_all();
  }

 private:
  Inbox& inbox_;
};

Address at(std::uint32_t node, std::uint64_t incarnation, ActorKind kind = ActorKind::kReplica) {
  return {NodeId{node}, Incarnation{incarnation}, {kind, 0}};
}

struct Fixture {
  std::unique_ptr<CafSystem> caf = std::move(CafSystem::make()).value();
  Post post;
  Inbox inbox;
  ActorHandle actor = spawn_actor(
      caf->system(), [this](const ActorHandle&) { return std::make_unique<Recorder>(inbox); });
  ~Fixture() { CHECK(actor.stop_and_wait(5s)); }
};

}  // namespace

TEST_CASE("a message within the process arrives by pointer") {
  Fixture f;
  f.post.attach(at(1, 7), f.actor);
  const auto message = message_of(Stop{"enough"});
  f.post.send({at(0, 1), at(1, 7), message});
  const auto got = f.inbox.take();
  REQUIRE(got);
  CHECK(got->message == message);
}

TEST_CASE("a message for another node goes to the lane of that life of it") {
  Fixture f;
  std::vector<Envelope> carried;
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope& e) {
    carried.push_back(e);
    return Status();
  });
  f.post.send({at(1, 7), at(2, 8), message_of(Stop{"x"})});
  CHECK(carried.size() == 1);
}

TEST_CASE("an undeliverable message returns an error to its sender") {
  Fixture f;
  f.post.attach(at(1, 7), f.actor);
  const auto expect_error = [&](std::uint64_t reference) {
    const auto got = f.inbox.take();
    REQUIRE(got);
    const auto* lost = std::get_if<Undeliverable>(got->message.get());
    REQUIRE(lost);
    CHECK(lost->reference == reference);
    CHECK(lost->error.code == ErrorCode::kUnavailable);
  };
  SUBCASE("nobody knows the node") {
    f.post.send({at(1, 7), at(5, 1), message_of(Cancel{SequenceId{42}, 0})});
    expect_error(42);
  }
  SUBCASE("the node lives anew: an old incarnation is fenced") {
    f.post.set_lane(NodeId{2}, Incarnation{9}, [](const Envelope&) { return Status(); });
    f.post.send({at(1, 7), at(2, 8), message_of(StepAbort{0, StepId{6}})});
    expect_error(6);
    CHECK(f.post.fenced() == 1);
  }
  SUBCASE("the lane refuses") {
    f.post.set_lane(NodeId{2}, Incarnation{8},
                    [](const Envelope&) { return Status(unavailable("full")); });
    Dispatch d;
    d.call = 77;
    f.post.send({at(1, 7), at(2, 8), message_of(std::move(d))});
    expect_error(77);
  }
}

TEST_CASE("an older life's lane replaces no newer one") {
  Fixture f;
  int newer = 0, older = 0;
  f.post.set_lane(NodeId{2}, Incarnation{9}, [&](const Envelope&) { return ++newer, Status(); });
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope&) { return ++older, Status(); });
  f.post.send({at(1, 7), at(2, 9), message_of(Stop{"x"})});
  CHECK(newer == 1);
  f.post.drop_lane(NodeId{2}, Incarnation{8});  // not the known life: nothing happens
  f.post.send({at(1, 7), at(2, 9), message_of(Stop{"x"})});
  CHECK(newer == 2);
  CHECK(older == 0);
}

TEST_CASE("what a lane brings for an actor that is not here is refused and counted") {
  Fixture f;
  f.post.attach(at(1, 7), f.actor);
  std::vector<Envelope> answers;
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope& e) {
    answers.push_back(e);
    return Status();
  });
  f.post.deliver({at(2, 8), at(1, 6), message_of(Cancel{SequenceId{5}, 0})});  // our older life
  CHECK(f.post.fenced() == 1);
  REQUIRE(answers.size() == 1);
  CHECK(std::get<Undeliverable>(*answers[0].message).reference == 5);
  CHECK(f.inbox.empty());
}

TEST_CASE("a detached actor gets nothing more; a stopped one swallows what comes") {
  Fixture f;
  f.post.attach(at(1, 7), f.actor);
  f.post.detach_node(NodeId{1}, Incarnation{7});
  f.post.send({at(0, 1), at(1, 7), message_of(Stop{"x"})});
  CHECK(f.inbox.empty());
}

TEST_CASE("an actor is woken at the earliest time that it asked for") {
  auto caf = std::move(CafSystem::make()).value();
  struct Sleeper : ActorBody {
    Sleeper(std::promise<TimePoint>& woken) : woken(woken) {}
    void on_message(const Envelope&) override {}
    void on_wake() override { woken.set_value(now()); }
    std::promise<TimePoint>& woken;
  };
  std::promise<TimePoint> woken;
  auto future = woken.get_future();
  const ActorHandle actor = spawn_actor(
      caf->system(), [&](const ActorHandle&) { return std::make_unique<Sleeper>(woken); });
  const TimePoint start = now();
  REQUIRE(actor
              .call([actor, start] {
                actor.wake_at(start + 10s);
                actor.wake_at(start + 30ms);
                actor.wake_at(start + 5s);
              })
              .ok());
  REQUIRE(future.wait_for(5s) == std::future_status::ready);
  CHECK(future.get() >= start + 30ms);
  CHECK(actor.stop_and_wait(5s));
}
