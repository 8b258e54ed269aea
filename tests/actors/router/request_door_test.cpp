#include "actors/router/request_door.h"

#include <doctest/doctest.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "actors/base/shell.h"
#include "tests/actors/effects.h"
#include "tests/actors/base/kept_mail.h"

using namespace troupe;
using namespace troupe::testing;

namespace {

const Ref<RouterInbox> kRouter{kHeadNode, Incarnation{1}};

std::shared_ptr<const ModelFrontend> by_ids() {
  ModelFrontend::Parts parts;
  parts.spec.vocab = 100;
  parts.max_model_len = 64;
  return std::make_shared<const ModelFrontend>(std::move(parts));
}

GenerationRequest request_of(std::vector<TokenId> prompt) {
  GenerationRequest request;
  request.prompt = std::move(prompt);
  return request;
}

/// Notes what a client hears.
struct Heard {
  std::vector<std::string> all;
  std::uint64_t reader = 0;
};
class NotingSink final : public GenerationSink {
 public:
  explicit NotingSink(Heard& heard) : heard_(heard) {}
  void on_event(GenerationEvent event) override {
    heard_.all.push_back(event.error ? event.error->message : "event");
  }

 private:
  Heard& heard_;
};

class AnsweringMail final : public Mailbox {
 public:
  explicit AnsweringMail(std::function<void(const Mail&)> how) : how_(std::move(how)) {}
  void end() override {}

 private:
  void enqueue(Mail mail) override {
    taken();
    how_(mail);
  }
  std::function<void(const Mail&)> how_;
};

/// A door whose Router is played by the test.
struct Fixture {
  Fixture() { post.attach(kRouter.address, mailbox); }
  void submit(std::vector<TokenId> prompt = {1, 2}) {
    door.submit_async(request_of(std::move(prompt)), std::make_shared<NotingSink>(heard),
                      [this](const Result<AcceptedRequest>& accepted) {
                        heard.all.push_back(accepted.ok() ? "accepted" : accepted.error().message);
                        if (accepted.ok()) heard.reader = accepted->reader;
                      });
  }
  template <class T>
  T told() {
    REQUIRE(!mailbox->kept.empty());
    const Mail mail = mailbox->take();
    T* content = local<RouterInbox, T>(mail);
    REQUIRE(content);
    return std::move(*content);
  }
  /// What is asked from now on is answered at once.
  void answer(std::function<void(const Mail&)> how) {
    post.attach(kRouter.address, std::make_shared<AnsweringMail>(std::move(how)));
  }
  Heard heard;
  Post post;
  std::shared_ptr<KeptMail> mailbox = std::make_shared<KeptMail>();
  RequestDoor door{post, kRouter, {by_ids(), nullptr, [] { return std::uint64_t{7}; }}};
};

using Hears = std::vector<std::string>;

}  // namespace

TEST_CASE("a request is heard of by its reader's ticket") {
  Fixture f;
  f.submit();
  const auto submitted = f.told<SubmitRequest>();
  CHECK(submitted.random_seed == 7);
  CHECK(submitted.request.prompt == std::vector<TokenId>{1, 2});
  CHECK(f.heard.all.empty());
  f.door.accepted({submitted.ticket, std::uint64_t{40}});
  f.door.accepted({submitted.ticket, std::uint64_t{41}});  // nobody has that ticket any more
  const std::uint64_t reader = f.heard.reader;
  CHECK(reader == submitted.ticket);
  f.door.deliver({40, {}, {reader + 1}});
  f.door.deliver({40, {}, {}});
  f.door.deliver({40, {}, {reader + 1, reader}});
  f.door.cancel(reader);
  const auto left = f.told<CancelRequest>();
  CHECK(left.request == 40);
  CHECK(left.ticket == reader);
  GenerationEvent last;
  last.request_done = true;
  f.door.deliver({40, last, {reader}});
  f.door.deliver({40, {}, {reader}});
  CHECK(f.heard.all == Hears{"accepted", "event", "event"});
  f.door.cancel(reader);  // it is over
  CHECK(f.mailbox->kept.empty());
}

TEST_CASE("several may read one request, each from where it is") {
  Heard other;
  Fixture f;
  f.submit();
  const std::uint64_t first = f.told<SubmitRequest>().ticket;
  f.door.accepted({first, std::uint64_t{40}});
  const auto name = std::make_shared<const RequestName>(RequestName{.id = "id"});
  f.answer([&](const Mail& mail) {
    const auto* asked = local<RouterInbox, AttachReader>(mail);
    REQUIRE(asked);
    CHECK(asked->wanted.id == "id");
    CHECK(asked->wanted.owner == 5);
    CHECK(asked->wanted.from == std::vector<std::uint32_t>{3});
    f.door.accepted({asked->ticket, std::uint64_t{40}, name});
  });
  const auto answer = f.door.attach({"id", 5, 0, {3}, true}, std::make_shared<NotingSink>(other));
  REQUIRE(answer.ok());
  CHECK(answer->name == name);
  f.door.deliver({40, {}, {answer->reader}, true});
  f.door.deliver({40, {}, {first, answer->reader}});
  CHECK(other.all == Hears{"event", "event"});
  CHECK(f.heard.all == Hears{"accepted", "event"});
}

TEST_CASE("a request that could not be written down is refused, and nobody hears of it") {
  Fixture f;
  const auto submit = [&](RequestName name) {
    GenerationRequest request = request_of({1, 2});
    request.name = std::make_shared<const RequestName>(std::move(name));
    f.door.submit_async(std::move(request), std::make_shared<NotingSink>(f.heard),
                        [&](const Result<AcceptedRequest>& accepted) {
                          f.heard.all.push_back(accepted.ok() ? "accepted"
                                                              : accepted.error().message);
                        });
  };
  submit({.id = "id", .form = "\xff"});
  REQUIRE(f.heard.all.size() == 1);
  CHECK(f.heard.all[0].find("cannot be kept") != std::string::npos);
  submit({.id = "id", .index = 3, .count = 2});
  REQUIRE(f.heard.all.size() == 2);
  CHECK(f.heard.all[1].find("a prompt's index") != std::string::npos);
  CHECK(f.mailbox->kept.empty());
  submit({.id = "id"});
  CHECK(f.mailbox->kept.size() == 1);
}

TEST_CASE("who asks for a name hears who has it, or that nobody does") {
  Fixture f;
  f.answer([&](const Mail& mail) {
    const auto* asked = local<RouterInbox, FindRequests>(mail);
    REQUIRE(asked);
    CHECK(!asked->forget);
    f.door.found({asked->ticket + 1, not_found("No.")});
    f.door.found({asked->ticket, std::vector<NamedRequest>(2)});
  });
  CHECK(f.door.find("id", 5).value().size() == 2);
  f.answer([&](const Mail& mail) {
    const auto* asked = local<RouterInbox, FindRequests>(mail);
    REQUIRE(asked);
    CHECK(asked->forget);
    f.door.found({asked->ticket, not_found("No.")});
  });
  CHECK(f.door.forget("id", 5).error().code == ErrorCode::kNotFound);
}

TEST_CASE("what is wrong with a request, the Router does not hear of") {
  Fixture f;
  f.submit({1, 1000});
  REQUIRE(f.heard.all.size() == 1);
  CHECK(f.heard.all[0] != "accepted");
  CHECK(f.mailbox->kept.empty());
}

TEST_CASE("when the cluster stops, whoever still waits hears of it") {
  Fixture f;
  f.submit();
  f.door.accepted({f.told<SubmitRequest>().ticket, std::uint64_t{40}});
  f.submit();
  f.door.close();
  f.submit();
  CHECK(f.heard.all == Hears{"accepted", "The cluster was stopped.", "The cluster was stopped.",
                             "The cluster was stopped."});
  f.door.accepted({f.told<SubmitRequest>().ticket, std::uint64_t{41}});
  f.door.deliver({40, {}, {f.heard.reader}});
  CHECK(f.heard.all.size() == 4);
  CHECK(f.mailbox->kept.empty());
}

TEST_CASE("the door shows what the Router holds") {
  Fixture f;
  Router router{Router::Options{}};
  RouterEffects effects;
  turn(router, AdmissionChanged{true, ""}, {}, effects);
  PreparedRequest prepared;
  prepared.prompt = {1, 2, 3};
  prepared.max_tokens = 4;
  prepared.timeout = std::chrono::seconds(1);
  turn(router, SubmitRequest{1, prepared, 1}, {}, effects);
  f.door.changed(router);
  CHECK(f.door.counts().waiting == 1);
  REQUIRE(f.door.list().size() == 1);
  CHECK(f.door.list()[0].prompt_tokens == 3);
  turn(router, CancelRequest{1}, {}, effects);
  f.door.changed(router);  // an end shows at once
  CHECK(f.door.counts().cancelled == 1);
  CHECK(f.door.list().empty());
}
