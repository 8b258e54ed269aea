#include "actors/base/shell.h"

#include <doctest/doctest.h>

#include <memory>
#include <string>
#include <vector>

#include "tests/actors/base/kept_mail.h"
#include "tests/actors/effects.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

struct Double {
  int number = 0;
};
struct Forget {};
/// A notebook takes Stop (to note), Cancel (to answer), and two local messages.
struct NotebookInbox {
  static constexpr ActorKind kKind = ActorKind::kReplica;
  using wire = Wire<Stop, Cancel>;
  using local = Local<Double, Forget>;
};
struct Noted {
  std::string text;
};

const Ref<NotebookInbox> kSelf{NodeId{1}, Incarnation{7}}, kOther{NodeId{1}, Incarnation{7}, 1};

/// Says several things of several kinds in one turn.
struct Notebook {
  using Inbox = NotebookInbox;
  using Effects = troupe::Effects<Noted>;

  void on(const Stop& stop, const Envelope&, TimePoint, Effects& effects) {
    effects.add(Noted{stop.reason});
    effects.send(kOther, Stop{"first"});
    effects.send(kOther, Double{1});
    effects.add(Noted{"between"});
    effects.send(kOther, Stop{"last"});
  }
  void on(const Cancel&, const Envelope& envelope, TimePoint, Effects& effects) {
    effects.refuse(envelope, "not now");
  }
  void on(Double twice, TimePoint, Effects&) { sum += 2 * twice.number; }
  void on(Forget, TimePoint, Effects&) { sum = -1; }
  void on_wake(TimePoint, Effects& effects) { effects.add(Noted{"woken"}); }
  void end_turn(TimePoint now, Effects& effects) {
    ++turns;
    effects.add(Noted{"end"});
    effects.wake_at(now + std::chrono::seconds(9));
    effects.wake_at(now + std::chrono::seconds(5));
    effects.wake_at(now + std::chrono::seconds(7));
  }
  std::string violation() const { return sum < 0 ? "the sum is negative" : ""; }

  int sum = 0, turns = 0;
};

/// What the machine wanted, in order; shared with the mailbox that its sends arrive in.
using Lines = std::vector<std::string>;
struct NotebookHands {
  Lines* diary;
  void carry_out(Noted&& noted, const Notebook&) { diary->push_back("noted " + noted.text); }
  void turned(const Notebook& machine) {
    diary->push_back("turn " + std::to_string(machine.turns));
  }
};
class LinesMailbox final : public Mailbox {
 public:
  explicit LinesMailbox(Lines& diary) : diary_(diary) {}
  void end() override {}

 private:
  void enqueue(Mail mail) override {
    if (mail.local) return diary_.push_back("told");
    if (const auto* stop = std::get_if<Stop>(mail.envelope.message.get()))
      return diary_.push_back("sent " + stop->reason);
    if (const auto* lost = std::get_if<Undeliverable>(mail.envelope.message.get()))
      return diary_.push_back("refused: " + lost->error.message);
  }
  Lines& diary_;
};

/// A host of one actor, which the test calls itself.
class BareHost final : public Host {
 public:
  using Host::Host;
  TimePoint now() const override { return time; }
  void spawn(const Address&, const Make&, Mail) override {}
  void end(const Address&) override {}
  bool checks_invariants() const override { return checks; }
  void broken(const Address& actor, const std::string& invariant) override {
    CHECK(actor == kSelf.address);
    violations.push_back(invariant);
  }
  TimePoint time{};
  bool checks = true;
  std::vector<std::string> violations;
};

struct Stage {
  Stage() { post.attach(kOther.address, std::make_shared<LinesMailbox>(diary)); }
  std::optional<TimePoint> send(auto message) {
    return shell.on(Mail(Envelope{kOther.address, kSelf.address, message_of(std::move(message))}));
  }
  std::optional<TimePoint> tell(auto message) {
    return shell.on(Mail(kOther.address, kSelf.address,
                         local_message_of<NotebookInbox>(std::move(message))));
  }
  Post post;
  Lines diary;
  BareHost host{post};
  Shell<Notebook, NotebookHands> shell{host, kSelf.address, Notebook{}, NotebookHands{&diary}};
};

}  // namespace

TEST_CASE("effects of all kinds are carried out in the order in which they were appended") {
  Stage stage;
  stage.send(Stop{"hello"});
  CHECK(stage.diary == Lines{"noted hello", "sent first", "told", "noted between", "sent last",
                             "noted end", "turn 1"});
}

TEST_CASE("the earliest time that a turn asked for is when the actor is woken") {
  Stage stage;
  CHECK(stage.shell.on_wake() == TimePoint{} + std::chrono::seconds(5));
  CHECK(stage.diary == Lines{"noted woken", "noted end", "turn 1"});
  stage.host.time += std::chrono::seconds(3);
  CHECK(stage.tell(Double{1}) == TimePoint{} + std::chrono::seconds(8));
}

TEST_CASE("local messages change the machine") {
  Stage stage;
  stage.tell(Double{4});
  stage.tell(Double{1});
  CHECK(stage.shell.machine().sum == 10);
  CHECK(stage.host.violations.empty());
}

TEST_CASE("what an inbox does not take is refused, but no refusal is answered") {
  Stage stage;
  stage.send(StepAbort{0, StepId{6}});
  stage.send(Cancel{SequenceId{1}, 0});
  stage.send(Undeliverable{});
  CHECK(stage.diary == Lines{"refused: That actor does not take this message.", "noted end",
                             "turn 1", "refused: not now", "noted end", "turn 2", "noted end",
                             "turn 3"});
}

TEST_CASE("an invariant that does not hold is reported before the turn has effects") {
  Stage stage;
  stage.tell(Forget{});
  CHECK(stage.host.violations == std::vector<std::string>{"the sum is negative"});
  stage.host.checks = false;
  stage.tell(Forget{});
  CHECK(stage.host.violations.size() == 1);
}

// What an inbox takes is known when it is compiled.
template <class Inbox, class T>
concept Sends = requires(Notebook::Effects effects, Ref<Inbox> to, T message) {
  effects.send(to, message);
};
static_assert(Sends<NotebookInbox, Stop> && Sends<NotebookInbox, Double>);
static_assert(!Sends<NotebookInbox, StepAbort> && !Sends<ReplicaInbox, Double>);
