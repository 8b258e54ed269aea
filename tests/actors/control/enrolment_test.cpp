#include "actors/control/enrolment.h"

#include <doctest/doctest.h>

#include <unistd.h>
#include <filesystem>

#include "actors/control/enrolment_desk.h"
#include "actors/control/frame_reader.h"
#include "actors/control/token_book.h"
#include "tests/actors/control/support.h"
#include "tests/patience.h"

using namespace troupe;

namespace {

/// A head with a desk, and its state folder.
struct Office {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("troupe-office-" + std::to_string(::getpid()));
  std::unique_ptr<CafSystem> caf = [] {
    auto made = CafSystem::make();
    REQUIRE(made.ok());
    return std::move(made).value();
  }();
  TokenBook book{folder};
  EnrolmentDesk desk;
  std::unique_ptr<Head> head;

  explicit Office(const ClusterCredentials& credentials = own_credentials(),
                  ControlOptions options = {})
      : desk((std::filesystem::create_directories(folder), credentials), folder) {
    options.enrol = [this](DeskVisit visit, std::function<void(std::string)> reply) {
      desk.take(std::move(visit), std::move(reply));
    };
    head = std::make_unique<Head>(*caf, options, credentials.head);
  }
  ~Office() {
    head.reset();
    std::filesystem::remove_all(folder);
  }

  JoinToken token(bool once = true) {
    const std::string hash = certificate_hash(own_credentials().head.ca_certificate);
    const auto made = book.create(hash, once, std::nullopt, 1);
    REQUIRE(made.ok());
    return *made;
  }
};

Result<Credentials> ask(const JoinToken& token, const HostPort& head) {
  auto enrolment = Enrolment::make(token);
  REQUIRE(enrolment.ok());
  return enrolment->ask(head, 3s);
}

/// A stranger that has got as far as TLS lets it.
struct Visitor {
  RawSocket socket;
  control::TlsSession tls;

  Visitor(std::uint16_t port, const std::string& hash)
      : socket(port), tls(*control::TlsContext::make_pinned(hash)) {
    std::vector<std::byte> plain;
    tls.receive({}, plain);
    flush();
    while (tls.state() == control::TlsSession::State::kHandshake) {
      const auto bytes = socket.receive(2s);
      if (bytes.empty()) return;
      tls.receive(bytes, plain);
      flush();
    }
  }
  void flush() {
    std::vector<char> out;
    tls.take_output(out);
    socket.send(out);
  }
  void say(std::span<const std::byte> bytes) {
    tls.send(bytes);
    flush();
  }
};

std::vector<std::byte> framed(std::string_view text) {
  auto frame = control::frame_header(text.size());
  const auto bytes = std::as_bytes(std::span(text));
  frame.insert(frame.end(), bytes.begin(), bytes.end());
  return frame;
}

}  // namespace

TEST_CASE("a token becomes a certificate of the cluster, and that a session") {
  Office office;
  const auto credentials = ask(office.token(), office.head->address());
  REQUIRE_MESSAGE(credentials.ok(), credentials.error().message);
  CHECK(credentials->certificate != own_credentials().worker.certificate);
  Worker worker(*office.caf, *credentials);
  worker.client->connect(office.head->address(), 3s);
  CHECK(worker.events.wait_up(1));
  CHECK(office.head->events.wait_up(1));
}

TEST_CASE("tokens that do not work: each gets its sentence, none a certificate") {
  Office office;
  const JoinToken good = office.token();
  const auto said = [&](const JoinToken& token) {
    const auto given = ask(token, office.head->address());
    REQUIRE_FALSE(given.ok());
    CHECK(given.error().code == ErrorCode::kRefused);
    return given.error().message;
  };
  JoinToken other = good;
  other.ca_hash = certificate_hash(foreign_credentials().head.ca_certificate);
  CHECK(said(other).find("another cluster") != std::string::npos);
  JoinToken wrong = good;
  wrong.secret = std::string(32, '0');
  CHECK(said(wrong).find("secret") != std::string::npos);
  JoinToken unknown = good;
  unknown.name = "nobody";
  CHECK(said(unknown).find("no token nobody") != std::string::npos);
  CHECK(ask(good, office.head->address()).ok());
  CHECK(said(good).find("used already") != std::string::npos);
  for (std::size_t i = 0; i < control::WrongSecrets::kWrongMax; ++i) (void)said(wrong);
  CHECK(said(wrong).find("Too many wrong tokens") != std::string::npos);
  CHECK(ask(office.token(), office.head->address()).ok());  // others come from there, too
  CHECK(office.head->events.ups().empty());
}

TEST_CASE("a head whose cluster's key is lost says so") {
  ClusterCredentials old = own_credentials();
  old.ca_key.clear();
  Office office(old);
  const auto given = ask(office.token(), office.head->address());
  REQUIRE_FALSE(given.ok());
  CHECK(given.error().message.find("earlier version") != std::string::npos);
}

TEST_CASE("a head without a desk lets nobody in without a certificate") {
  Office office;
  Head closed(*office.caf);
  const auto given = ask(office.token(), closed.address());
  REQUIRE_FALSE(given.ok());
  CHECK(given.error().message.find("takes no tokens") != std::string::npos);
}

TEST_CASE("a stranger at the door is no session, has a deadline, and one question") {
  Office office(own_credentials(), {.handshake_deadline = 2s});
  const std::string hash = certificate_hash(own_credentials().head.ca_certificate);
  const std::uint16_t port = office.head->server->port();
  Visitor silent(port, hash);
  REQUIRE(silent.tls.state() == control::TlsSession::State::kOpen);
  Visitor envelopes(port, hash);
  envelopes.say(frame_of(greeting()));  // a member's message: answered as a bad request
  Visitor twice(port, hash);
  auto two = framed("a");
  const auto again = framed("b");
  two.insert(two.end(), again.begin(), again.end());
  twice.say(two);
  Visitor endless(port, hash);
  endless.say(control::frame_header(limits::kControlFrameBytesMax));
  const std::vector<std::byte> much(limits::kUnauthenticatedBytesMax);
  endless.say(much);
  for (Visitor* visitor : {&silent, &envelopes, &twice, &endless})
    CHECK(visitor->socket.closed_within(kTestPatience));
  CHECK(office.head->events.ups().empty());
  CHECK(ask(office.token(), office.head->address()).ok());
}

TEST_CASE("who is no head is told no secret") {
  // It has a certificate of the cluster, as each worker has, and listens in the head's place.
  Office office;
  Head impostor(*office.caf, {.enrol = [](auto, auto reply) { reply(std::string("x")); }},
                own_credentials().worker);
  std::atomic<bool> told{false};
  Head watched(*office.caf,
               {.enrol = [&](auto, auto reply) { told = true, reply(std::string("x")); }},
               foreign_credentials().head);
  for (Head* head : {&impostor, &watched}) {
    const auto given = ask(office.token(), head->address());
    REQUIRE_FALSE(given.ok());
    CHECK(given.error().message.find("another cluster") != std::string::npos);
  }
  CHECK_FALSE(told);
}
