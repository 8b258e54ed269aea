#include "actors/base/caf_host.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <future>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "actors/control/caf_system.h"
#include "runtime/limits.h"
#include "tests/actors/base/kept_mail.h"
#include "tests/patience.h"

using namespace troupe;
using namespace troupe::testing;
using namespace std::chrono_literals;

namespace {

/// Of who hears of an actor's end.
struct OwnerInbox {
  static constexpr ActorKind kKind = ActorKind::kNodeAgent;
  using wire = Wire<>;
  using local = Local<Ended>;
};

/// What actors did, in order.
struct Diary {
  void add(std::string entry) {
    std::lock_guard lock(mutex);
    entries.push_back(std::move(entry));
    changed.notify_all();
  }
  bool wait(std::size_t count) {
    std::unique_lock lock(mutex);
    return changed.wait_for(lock, kTestPatience, [&] { return entries.size() >= count; });
  }
  std::vector<std::string> read() {
    std::lock_guard lock(mutex);
    return entries;
  }
  std::mutex mutex;
  std::condition_variable changed;
  std::vector<std::string> entries;
};

std::string name_of(const Mail& mail) {
  if (mail.local) return "local";
  const auto* stop = std::get_if<Stop>(mail.envelope.message.get());
  return stop ? stop->reason : "other";
}

/// Notes what it gets, and does what the test says.
class Noting final : public Actor {
 public:
  using Hook = std::function<std::optional<TimePoint>(const std::string&)>;
  Noting(Diary& diary, Hook hook, Life life)
      : diary_(diary), hook_(std::move(hook)), life_(std::move(life)) {}
  ~Noting() override { diary_.add("gone"); }
  std::optional<TimePoint> on(Mail mail) override {
    diary_.add(name_of(mail));
    return hook_(name_of(mail));
  }
  std::optional<TimePoint> on_wake() override {
    diary_.add("wake");
    return hook_("wake");
  }

 private:
  Diary& diary_;
  const Hook hook_;
  const Life life_;
};

struct Fixture {
  Address self = at(1, 7), owner = at(1, 7, ActorKind::kNodeAgent);
  std::unique_ptr<CafSystem> caf = std::move(CafSystem::make()).value();
  Post post;
  Diary diary;
  std::shared_ptr<KeptMail> owners_mail = std::make_shared<KeptMail>();
  CafHost host{caf->system(), post};

  Fixture() { post.attach(owner, owners_mail); }
  void spawn(Noting::Hook hook = [](const std::string&) { return std::nullopt; }) {
    host.spawn(
        self,
        [this, hook](const Life& life) { return std::make_unique<Noting>(diary, hook, life); },
        Mail(self, owner, local_message_of<OwnerInbox>(Ended{self})));
  }
  void send(const std::string& reason) { post.send({owner, self, message_of(Stop{reason})}); }
};

using Entries = std::vector<std::string>;

}  // namespace

TEST_CASE("an actor's first turn is a wake; then it takes its mail in order") {
  Fixture f;
  f.spawn();
  f.send("a");
  f.post.tell(Ref<ReplicaInbox>(NodeId{1}, Incarnation{7}), PeerDown{});
  f.send("b");
  REQUIRE(f.diary.wait(4));
  CHECK(f.diary.read() == Entries{"wake", "a", "local", "b"});
}

TEST_CASE("an actor is woken once, at the earliest time that it asked for") {
  Fixture f;
  const TimePoint start = now();
  std::promise<TimePoint> woken;
  int wakes = 0;
  f.spawn([&](const std::string& what) -> std::optional<TimePoint> {
    if (what == "wake" && ++wakes == 2) woken.set_value(now());
    if (wakes >= 2) return std::nullopt;
    if (what == "wake") return start + 100ms;
    return what == "earlier" ? start + 30ms : start + 60ms;
  });
  f.send("earlier");
  f.send("later");
  auto future = woken.get_future();
  REQUIRE(future.wait_for(kTestPatience) == std::future_status::ready);
  CHECK(future.get() >= start + 30ms);
  std::this_thread::sleep_until(start + 150ms);  // neither of the replaced times wakes it
  CHECK(f.diary.read() == Entries{"wake", "earlier", "later", "wake"});
}

TEST_CASE("a mailbox that is full answers; what lies in it is taken") {
  Fixture f;
  std::promise<void> go_on;
  auto may_go_on = go_on.get_future().share();
  f.spawn([may_go_on](const std::string& what) {
    if (what == "wake") may_go_on.wait();
    return std::nullopt;
  });
  REQUIRE(f.diary.wait(1));
  const auto message = message_of(Stop{"x"});
  for (std::size_t i = 0; i < limits::kMailboxMax; ++i) f.post.send({f.owner, f.self, message});
  CHECK(f.owners_mail->kept.empty());
  f.post.send({f.owner, f.self, message_of(Cancel{SequenceId{3}, 0})});
  REQUIRE(f.owners_mail->kept.size() == 1);
  const auto& lost = std::get<Undeliverable>(*f.owners_mail->kept[0].envelope.message);
  CHECK(lost.reference == 3);
  CHECK(lost.error.code == ErrorCode::kResourceExhausted);
  f.post.tell(Ref<ReplicaInbox>(NodeId{1}, Incarnation{7}), PeerDown{});
  go_on.set_value();
  REQUIRE(f.diary.wait(limits::kMailboxMax + 2));
  CHECK(f.diary.read().back() == "local");
}

TEST_CASE("at its end an actor takes what lies in its mailbox, and nothing that comes later") {
  Fixture f;
  std::promise<void> go_on;
  auto may_go_on = go_on.get_future().share();
  f.spawn([may_go_on](const std::string& what) {
    if (what == "wake") may_go_on.wait();
    return std::nullopt;
  });
  REQUIRE(f.diary.wait(1));
  f.send("a");
  f.send("b");
  f.host.end(f.self);
  f.send("late");
  REQUIRE(f.owners_mail->kept.size() == 1);  // of `late`
  const auto first = f.owners_mail->take();
  CHECK(std::holds_alternative<Undeliverable>(*first.envelope.message));
  CHECK_FALSE(f.host.wait_ended(f.self, 20ms));
  CHECK(f.owners_mail->kept.empty());
  go_on.set_value();
  REQUIRE(f.host.wait_ended(f.self, kTestPatience));
  CHECK(f.diary.read() == Entries{"wake", "a", "b", "gone"});
}

TEST_CASE("an actor's end is told once, when nobody holds its life any more") {
  Fixture f;
  std::promise<void> told;
  struct Owner final : Mailbox {
    explicit Owner(std::promise<void>& told) : told(told) {}
    void end() override {}
    void enqueue(Mail mail) override {
      const auto* content = dynamic_cast<LocalMessageOf<Ended>*>(mail.local.get());
      REQUIRE(content);
      CHECK(content->content.actor == at(1, 7));
      told.set_value();  // throws if it is told twice
    }
    std::promise<void>& told;
  };
  f.post.attach(f.owner, std::make_shared<Owner>(told));
  Life job;  // as a job of the actor would hold it
  f.host.spawn(
      f.self,
      [&](const Life& life) {
        job = life;
        return std::make_unique<Noting>(
            f.diary, [](const std::string&) { return std::nullopt; }, life);
      },
      Mail(f.self, f.owner, local_message_of<OwnerInbox>(Ended{f.self})));
  REQUIRE(f.diary.wait(1));
  f.host.end(f.self);
  REQUIRE(f.diary.wait(2));
  CHECK(f.diary.read().back() == "gone");
  auto future = told.get_future();
  CHECK(future.wait_for(30ms) == std::future_status::timeout);
  CHECK_FALSE(f.host.wait_ended(f.self, 0s));
  job.reset();
  CHECK(f.host.wait_ended(f.self, kTestPatience));
  CHECK(future.wait_for(kTestPatience) == std::future_status::ready);
}

TEST_CASE("a host ends the actors that are left") {
  Diary diary;
  auto caf = std::move(CafSystem::make()).value();
  Post post;
  {
    CafHost host(caf->system(), post);
    for (const std::uint32_t node : {1u, 2u})
      host.spawn(
          at(node, 7),
          [&](const Life& life) {
            return std::make_unique<Noting>(
                diary, [](const std::string&) { return std::nullopt; }, life);
          },
          {});
  }
  CHECK(std::count(diary.entries.begin(), diary.entries.end(), "gone") == 2);
  CHECK(!post.find(at(1, 7)));
}
