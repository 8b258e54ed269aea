#include "actors/base/post.h"

#include <doctest/doctest.h>

#include <memory>
#include <vector>

#include "runtime/limits.h"
#include "tests/actors/base/kept_mail.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct PostFixture {
  PostFixture() { post.attach(at(1, 7), mailbox); }
  Post post;
  std::shared_ptr<KeptMail> mailbox = std::make_shared<KeptMail>();
};

const Ref<ReplicaInbox> kReplica{NodeId{1}, Incarnation{7}};

}  // namespace

TEST_CASE("a message within the process arrives by pointer, in order") {
  PostFixture f;
  const auto first = message_of(Stop{"enough"}), second = message_of(Stop{"really"});
  f.post.send({at(0, 1), at(1, 7), first});
  f.post.send({at(0, 1), at(1, 7), second});
  REQUIRE(f.mailbox->kept.size() == 2);
  CHECK(f.mailbox->kept[0].envelope.message == first);
  CHECK(f.mailbox->kept[1].envelope.message == second);
}

TEST_CASE("a local message arrives as what it is; without its actor it is dropped") {
  PostFixture f;
  f.post.tell(kReplica, PeerDown{NodeId{4}, Incarnation{2}, "gone"});
  REQUIRE(f.mailbox->kept.size() == 1);
  const auto* content =
      dynamic_cast<LocalMessageOf<PeerDown>*>(f.mailbox->kept[0].local.get());
  REQUIRE(content);
  CHECK(content->content.node == NodeId{4});
  f.post.tell(Ref<ReplicaInbox>(NodeId{1}, Incarnation{8}), PeerDown{});
  CHECK(f.mailbox->kept.size() == 1);
}

TEST_CASE("a message for another node goes to the lane of that life of it") {
  PostFixture f;
  std::vector<Envelope> carried;
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope& e) {
    carried.push_back(e);
    return Status();
  });
  f.post.send({at(1, 7), at(2, 8), message_of(Stop{"x"})});
  CHECK(carried.size() == 1);
}

TEST_CASE("an undeliverable message returns an error to its sender") {
  PostFixture f;
  const auto expect_error = [&](std::uint64_t reference) {
    REQUIRE(f.mailbox->kept.size() == 1);
    const Mail got = f.mailbox->take();
    const auto* lost = std::get_if<Undeliverable>(got.envelope.message.get());
    REQUIRE(lost);
    CHECK(lost->reference == reference);
    CHECK(lost->error.code == ErrorCode::kUnavailable);
  };
  SUBCASE("nobody knows the node") {
    f.post.send({at(1, 7), at(5, 1), message_of(Cancel{SequenceId{42}, 0})});
    expect_error(42);
  }
  SUBCASE("the node has a new life: the old incarnation is fenced") {
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
  PostFixture f;
  int newer = 0, older = 0;
  f.post.set_lane(NodeId{2}, Incarnation{9}, [&](const Envelope&) { return ++newer, Status(); });
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope&) { return ++older, Status(); });
  f.post.send({at(1, 7), at(2, 9), message_of(Stop{"x"})});
  CHECK(newer == 1);
  f.post.drop_lane(NodeId{2}, Incarnation{8});  // not the known life: nothing happens
  f.post.send({at(1, 7), at(2, 9), message_of(Stop{"x"})});
  CHECK(newer == 2);
  CHECK(older == 0);
  f.post.drop_lane(NodeId{2}, Incarnation{9});
  f.post.send({at(1, 7), at(2, 9), message_of(Stop{"x"})});
  CHECK(newer == 2);
  CHECK(f.mailbox->kept.size() == 1);  // Undeliverable
}

TEST_CASE("what a lane brings for an actor that is not here is refused and counted") {
  PostFixture f;
  std::vector<Envelope> answers;
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope& e) {
    answers.push_back(e);
    return Status();
  });
  f.post.deliver({at(2, 8), at(1, 6), message_of(Cancel{SequenceId{5}, 0})});  // our older life
  CHECK(f.post.fenced() == 1);
  REQUIRE(answers.size() == 1);
  CHECK(std::get<Undeliverable>(*answers[0].message).reference == 5);
  // What is itself such an answer is not answered.
  f.post.deliver({at(2, 8), at(1, 6), answers[0].message});
  CHECK(answers.size() == 1);
  CHECK(f.mailbox->kept.empty());
}

TEST_CASE("a full mailbox is said to be full, and is no fence") {
  PostFixture f;
  std::vector<Envelope> answers;
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope& e) {
    answers.push_back(e);
    return Status();
  });
  const auto message = message_of(Cancel{SequenceId{5}, 0});
  for (std::size_t i = 0; i < limits::kMailboxMax; ++i)
    f.post.deliver({at(2, 8), at(1, 7), message});
  CHECK(answers.empty());
  f.post.deliver({at(2, 8), at(1, 7), message});
  REQUIRE(answers.size() == 1);
  CHECK(std::get<Undeliverable>(*answers[0].message).error.code == ErrorCode::kResourceExhausted);
  CHECK(f.post.fenced() == 0);
}

TEST_CASE("mail that is held leaves in its order, or never") {
  PostFixture f;
  std::vector<std::uint64_t> carried;
  f.post.set_lane(NodeId{2}, Incarnation{8}, [&](const Envelope& e) {
    carried.push_back(std::get<StepAbort>(*e.message).step.value);
    return Status();
  });
  const auto send = [&](std::uint64_t life, std::uint64_t step) {
    f.post.send({at(1, life), at(2, 8), message_of(StepAbort{0, StepId{step}})});
  };
  f.post.hold(NodeId{1}, Incarnation{7});
  send(7, 1);
  send(7, 2);
  CHECK(carried.empty());
  // Within the node it goes on, and so does what others say.
  f.post.send({at(1, 7), at(1, 7), message_of(Stop{"x"})});
  CHECK(f.mailbox->kept.size() == 1);
  send(6, 9);
  CHECK(carried == std::vector<std::uint64_t>{9});
  SUBCASE("it goes on") {
    f.post.end_hold(NodeId{1}, Incarnation{7}, true);
    send(7, 3);
    CHECK(carried == std::vector<std::uint64_t>{9, 1, 2, 3});
  }
  SUBCASE("it was fenced") {
    f.post.end_hold(NodeId{1}, Incarnation{6}, true);  // another life's: nothing happens
    CHECK(carried.size() == 1);
    f.post.end_hold(NodeId{1}, Incarnation{7}, false);
    send(7, 3);
    CHECK(carried == std::vector<std::uint64_t>{9, 3});
  }
}

TEST_CASE("a detached actor gets nothing more") {
  PostFixture f;
  CHECK(f.post.detach(at(1, 7)) == f.mailbox);
  CHECK(!f.post.detach(at(1, 7)));
  f.post.send({at(0, 1), at(1, 7), message_of(Stop{"x"})});
  f.post.tell(kReplica, PeerDown{});
  CHECK(f.mailbox->kept.empty());
}

TEST_CASE("peers fill a mailbox only so far; the rest is for the node's own news") {
  PostFixture f;
  const auto message = message_of(Stop{"x"});
  for (std::size_t i = 0; i < limits::kMailboxMax; ++i)
    REQUIRE(f.mailbox->put(Mail(Envelope{at(2, 1), at(1, 7), message})).ok());
  const Status refused = f.mailbox->put(Mail(Envelope{at(2, 1), at(1, 7), message}));
  CHECK(refused.error().code == ErrorCode::kResourceExhausted);

  const auto news = local_message_of<ReplicaInbox>(PeerDown{});
  for (std::size_t i = 0; i < limits::kMailboxReserved; ++i)
    REQUIRE(f.mailbox->put(Mail({}, at(1, 7), news)).ok());
  CHECK_FALSE(f.mailbox->put(Mail({}, at(1, 7), news)).ok());

  (void)f.mailbox->take();  // what is taken makes room, first for news
  CHECK_FALSE(f.mailbox->put(Mail(Envelope{at(2, 1), at(1, 7), message})).ok());
  CHECK(f.mailbox->put(Mail({}, at(1, 7), news)).ok());
  CHECK(f.mailbox->kept.size() == limits::kMailboxMax + limits::kMailboxReserved);
}
