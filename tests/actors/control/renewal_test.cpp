#include "actors/control/renewal.h"

#include <doctest/doctest.h>
#include <openssl/x509v3.h>
#include <pthread.h>
#include <sys/resource.h>
#include <unistd.h>

#include <filesystem>
#include <future>
#include <set>

#include "actors/control/certificate_request.h"
#include "actors/control/desk_call.h"
#include "actors/control/dialer.h"
#include "actors/control/enrolment_desk.h"
#include "actors/control/enrolment_text.h"
#include "actors/control/pem.h"
#include "actors/control/signing.h"
#include "tests/actors/control/support.h"

using namespace troupe;
using control::TlsSide;

namespace {

/// A head whose desk signs for an hour.
struct RenewingHead {
  std::filesystem::path folder =
      std::filesystem::temp_directory_path() / ("troupe-renewals-" + std::to_string(::getpid()));
  std::unique_ptr<CafSystem> caf = [] {
    auto made = CafSystem::make();
    REQUIRE(made.ok());
    return std::move(made).value();
  }();
  EnrolmentDesk desk;
  std::unique_ptr<Head> head;

  explicit RenewingHead(const ClusterCredentials& credentials = own_credentials())
      : desk((std::filesystem::create_directories(folder), credentials), folder, 3600) {
    ControlOptions options;
    options.enrol = [this](DeskVisit visit, std::function<void(std::string)> reply) {
      desk.take(std::move(visit), std::move(reply));
    };
    head = std::make_unique<Head>(*caf, options, credentials.head);
  }
  ~RenewingHead() {
    head.reset();
    std::filesystem::remove_all(folder);
  }
};

/// A certificate of that role by the cluster's CA.
Credentials signed_as(const control::Role& role,
                      const ClusterCredentials& cluster = own_credentials()) {
  const control::KeyPtr key(EVP_EC_gen("P-256"));
  const auto ca = control::read_certificate(cluster.head.ca_certificate);
  const auto ca_key = control::read_key(cluster.ca_key);
  const auto made = control::sign(role, key.get(), ca.get(), ca_key.get());
  REQUIRE(made);
  return {cluster.head.ca_certificate, control::write_certificate(made.get()),
          control::write_key(key.get())};
}

/// Ended an hour ago.
Credentials ended(const control::Role& role = control::worker_role(3600)) {
  Credentials credentials = signed_as(role);
  const auto certificate = control::read_certificate(credentials.certificate);
  const auto ca_key = control::read_key(own_credentials().ca_key);
  X509_gmtime_adj(X509_getm_notBefore(certificate.get()), -7200);
  X509_gmtime_adj(X509_getm_notAfter(certificate.get()), -3600);
  REQUIRE(X509_sign(certificate.get(), ca_key.get(), EVP_sha256()) > 0);
  credentials.certificate = control::write_certificate(certificate.get());
  return credentials;
}

bool comes_up(RenewingHead& office, const Credentials& credentials) {
  Worker worker(*office.caf, credentials);
  worker.client->connect(office.head->address(), 3s);
  return worker.events.wait_up(1);
}

/// While it lives, no descriptor is to be had.
class NoDescriptors {
 public:
  NoDescriptors() {
    getrlimit(RLIMIT_NOFILE, &before_);
    const int next = ::dup(STDOUT_FILENO);
    ::close(next);
    const rlimit none{static_cast<rlim_t>(next), before_.rlim_max};
    setrlimit(RLIMIT_NOFILE, &none);
  }
  ~NoDescriptors() { setrlimit(RLIMIT_NOFILE, &before_); }
  NoDescriptors(const NoDescriptors&) = delete;

 private:
  rlimit before_{};
};

/// While it lives, no thread is to be had: there is no room for so large a stack.
class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t huge;
    pthread_attr_init(&huge);
    pthread_attr_setstacksize(&huge, std::size_t{1} << 50);
    pthread_setattr_default_np(&huge);
    pthread_attr_destroy(&huge);
  }
  ~NoThreads() {
    pthread_setattr_default_np(&before_);
    pthread_attr_destroy(&before_);
  }
  NoThreads(const NoThreads&) = delete;

 private:
  pthread_attr_t before_{};
};

std::string name_of(const std::string& pem) {
  const auto certificate = control::read_certificate(pem);
  char text[256] = {};
  X509_NAME_oneline(X509_get_subject_name(certificate.get()), text, sizeof text);
  return text;
}

}  // namespace

TEST_CASE("a member gets the next certificate, with a new key, and no session notices") {
  RenewingHead office;
  const Credentials& old = own_credentials().worker;
  Worker worker(*office.caf, old);
  worker.client->connect(office.head->address(), 3s);
  REQUIRE(worker.events.wait_up(1));
  const auto next = renew_credentials(old, office.head->address(), 3s);
  REQUIRE_MESSAGE(next.ok(), next.error().message);
  CHECK(next->private_key != old.private_key);
  CHECK(may_replace(old, *next, TlsSide::kClient, unix_seconds()).ok());
  const auto life = life_of(next->certificate);
  REQUIRE(life.ok());
  CHECK(std::abs(life->ends_s - unix_seconds() - 3600) < 60);
  REQUIRE(worker.client->use(*next).ok());
  CHECK(worker.events.downs().empty());
  worker.client->connect(office.head->address(), 3s);
  CHECK(worker.events.wait_up(2));
  CHECK(office.head->events.ups().size() == 2);  // renewals are no sessions
  const auto third = renew_credentials(*next, office.head->address(), 3s);
  REQUIRE(third.ok());
  const std::string name = certificate_name(old.certificate).value();
  CHECK(is_certificate_name(name));
  CHECK(certificate_name(next->certificate).value() == name);
  CHECK(certificate_name(third->certificate).value() == name);
}

TEST_CASE("without descriptors or threads it is an error, and works again when there are some") {
  RenewingHead office;
  const Credentials& old = own_credentials().worker;
  {
    const NoDescriptors none;
    const auto next = renew_credentials(old, office.head->address(), 1s);
    REQUIRE_FALSE(next.ok());
    CHECK(next.error().code == ErrorCode::kUnavailable);
    CHECK(next.error().message.find("Too many open files") != std::string::npos);
  }
  {
    const NoThreads none;
    const auto next = renew_credentials(old, office.head->address(), 1s);
    REQUIRE_FALSE(next.ok());
    CHECK(next.error().code == ErrorCode::kUnavailable);
    CHECK(next.error().message.find("no thread") != std::string::npos);
  }
  const auto dialer = control::Dialer::make();
  REQUIRE(dialer.ok());
  {
    const NoThreads none;  // for the look-up of a name
    std::promise<Result<control::Dialed>> answer;
    (*dialer)->dial({"localhost", office.head->address().port}, now() + 5s,
                    [&](Result<control::Dialed> dialed) { answer.set_value(std::move(dialed)); });
    const auto dialed = answer.get_future().get();
    REQUIRE_FALSE(dialed.ok());
    CHECK(dialed.error().code == ErrorCode::kUnavailable);
  }
  CHECK(renew_credentials(old, {"localhost", office.head->address().port}, 3s).ok());
}

TEST_CASE("the desk signs by the CA's key and shows the CA's certificate that the head has now") {
  ClusterCredentials without = own_credentials();
  without.ca_key.clear();
  RenewingHead office(without);
  const Credentials& old = own_credentials().worker;
  const auto none = renew_credentials(old, office.head->address(), 3s);
  REQUIRE_FALSE(none.ok());
  CHECK(none.error().code == ErrorCode::kRefused);

  // The CA's certificate again, as an operator signs it before it ends: other bytes, the same key.
  ClusterCredentials with = own_credentials();
  const auto ca = control::read_certificate(with.head.ca_certificate);
  ASN1_INTEGER_set(X509_get_serialNumber(ca.get()), 77);
  REQUIRE(X509_sign(ca.get(), control::read_key(with.ca_key).get(), EVP_sha256()) > 0);
  with.head.ca_certificate = with.worker.ca_certificate = control::write_certificate(ca.get());
  office.desk.use(with);
  const auto next = renew_credentials(old, office.head->address(), 3s);
  REQUIRE_MESSAGE(next.ok(), next.error().message);
  CHECK(next->ca_certificate == with.head.ca_certificate);
}

TEST_CASE("whatever a request says of itself, the certificate is a worker's") {
  RenewingHead office;
  // As openssl would make one for another: with a name, and what it would like to be.
  const control::KeyPtr key(EVP_EC_gen("P-256"));
  const control::RequestPtr request(X509_REQ_new());
  X509_NAME* name = X509_REQ_get_subject_name(request.get());
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("Troupe head"), -1, -1, 0);
  STACK_OF(X509_EXTENSION)* wanted = sk_X509_EXTENSION_new_null();
  sk_X509_EXTENSION_push(
      wanted, X509V3_EXT_conf_nid(nullptr, nullptr, NID_ext_key_usage, "serverAuth,clientAuth"));
  sk_X509_EXTENSION_push(
      wanted, X509V3_EXT_conf_nid(nullptr, nullptr, NID_basic_constraints, "critical,CA:TRUE"));
  X509_REQ_add_extensions(request.get(), wanted);
  sk_X509_EXTENSION_pop_free(wanted, X509_EXTENSION_free);
  X509_REQ_set_pubkey(request.get(), key.get());
  X509_REQ_sign(request.get(), key.get(), EVP_sha256());
  const control::BioPtr bio(BIO_new(BIO_s_mem()));
  PEM_write_bio_X509_REQ(bio.get(), request.get());
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  const std::string text(data, static_cast<std::size_t>(size));

  auto context = control::TlsContext::make(own_credentials().worker, TlsSide::kClient, true);
  REQUIRE(context.ok());
  const auto answer =
      control::call_desk(office.head->address(), *context, control::TlsPurpose::kRenewal,
                         control::format_renewal(text), 3s);
  REQUIRE_MESSAGE(answer.ok(), answer.error().message);
  const auto given =
      control::read_answer(*answer, {control::write_key(key.get()), text}, "the head");
  REQUIRE_MESSAGE(given.ok(), given.error().message);
  const std::string called = certificate_name(own_credentials().worker.certificate).value();
  CHECK(name_of(given->certificate) == "/CN=Troupe worker/serialNumber=" + called);
  CHECK_FALSE(may_replace(own_credentials().head, *given, TlsSide::kServer, unix_seconds()).ok());
}

TEST_CASE("who gets no renewal: strangers, the ended, and those of a head without the key") {
  RenewingHead office;
  const auto refusal = [&](const Credentials& shown, RenewingHead& asked) {
    const auto given = renew_credentials(shown, asked.head->address(), 3s);
    REQUIRE_FALSE(given.ok());
    return given.error().message;
  };
  CHECK(refusal(foreign_credentials().worker, office).find("another cluster") != std::string::npos);
  CHECK(refusal(ended(), office).find("has ended") != std::string::npos);
  ClusterCredentials keyless = own_credentials();
  keyless.ca_key.clear();
  {
    RenewingHead old(keyless);
    CHECK(refusal(own_credentials().worker, old).find("no key") != std::string::npos);
  }
  Head closed(*office.caf);
  const auto given = renew_credentials(own_credentials().worker, closed.address(), 3s);
  REQUIRE_FALSE(given.ok());
  CHECK(passing(given.error().code));  // such as a standby: another is asked
  const auto nobody = renew_credentials(own_credentials().worker, {"127.0.0.1", 1}, 1s);
  CHECK(nobody.error().code == ErrorCode::kUnavailable);
  // Who leaves out the certificate, and asks for a renewal all the same.
  auto pinned =
      control::TlsContext::make_pinned(certificate_hash(own_credentials().head.ca_certificate));
  const std::string protocol = "\x0etroupe-renew/1";
  SSL_CTX_set_alpn_protos((*pinned)->get(), reinterpret_cast<const unsigned char*>(protocol.data()),
                          static_cast<unsigned int>(protocol.size()));
  const auto asked = make_certificate_request();
  CHECK_FALSE(control::call_desk(office.head->address(), *pinned, control::TlsPurpose::kRenewal,
                                 control::format_renewal(asked->text), 3s)
                  .ok());
}

TEST_CASE("the head lets nobody in by a certificate that has ended, and a worker asks no clock") {
  RenewingHead office;
  CHECK(comes_up(office, signed_as(control::worker_role(3600))));
  Worker late(*office.caf, ended());
  late.client->connect(office.head->address(), 3s);
  REQUIRE(late.events.wait_down(1));
  const auto down = late.events.downs()[0].end;
  CHECK(down.kind == SessionEndKind::kForeign);
  CHECK(down.text.find("certificate has ended") != std::string::npos);
  CHECK(down.text.find("--token") != std::string::npos);
  Head old(*office.caf, {}, ended(control::head_role(3600)));
  Worker worker(*office.caf);
  worker.client->connect(old.address(), 3s);
  CHECK(worker.events.wait_up(1));
}

TEST_CASE("a head that uses other credentials keeps its sessions, and shows them to new ones") {
  RenewingHead office;
  Worker before(*office.caf);
  before.client->connect(office.head->address(), 3s);
  REQUIRE(before.events.wait_up(1));
  CHECK_FALSE(office.head->server->use({"no", "PEM", "here"}).ok());
  REQUIRE(office.head->server->use(foreign_credentials().head).ok());
  Worker after(*office.caf);
  after.client->connect(office.head->address(), 3s);
  REQUIRE(after.events.wait_down(1));
  CHECK(before.events.downs().empty());
  REQUIRE(office.head->server->use(signed_as(control::head_role(3600))).ok());
  CHECK(comes_up(office, own_credentials().worker));
  CHECK(before.events.downs().empty());
}

TEST_CASE("who is revoked is cut off, and kept out with a connection of before, too") {
  RenewingHead office;
  const Credentials stolen = signed_as(control::worker_role(3600));
  Credentials head = own_credentials().head;
  head.revoked = {certificate_name(stolen.certificate).value()};
  Worker before(*office.caf, stolen), other(*office.caf);
  before.client->connect(office.head->address(), 3s);
  other.client->connect(office.head->address(), 3s);
  REQUIRE(before.events.wait_up(1));
  REQUIRE(other.events.wait_up(1));
  // In the middle of its handshake.
  RawSocket socket(office.head->server->port());
  control::TlsSession half(*control::TlsContext::make(stolen, TlsSide::kClient));
  std::vector<std::byte> plain;
  std::vector<char> out;
  half.receive({}, plain);
  half.take_output(out);
  REQUIRE(socket.send(out));
  while (half.state() == control::TlsSession::State::kHandshake) {
    const auto answer = socket.receive(3s);
    REQUIRE(!answer.empty());
    half.receive(answer, plain);
  }
  CHECK(half.state() == control::TlsSession::State::kOpen);  // as a client sees it
  out.clear();
  half.take_output(out);  // its certificate

  REQUIRE(office.head->server->use(head).ok());
  REQUIRE(before.events.wait_down(1));
  CHECK(socket.send(out));
  CHECK(socket.closed_within(3s));
  before.client->connect(office.head->address(), 3s);
  REQUIRE(before.events.wait_down(2));
  CHECK(before.events.downs().back().end.text.find("revoked") != std::string::npos);
  CHECK_FALSE(renew_credentials(stolen, office.head->address(), 3s).ok());
  CHECK(office.head->events.ups().size() == 2);
  CHECK(other.events.downs().empty());
}

TEST_CASE("certificates that others have signed have names, too") {
  const auto certificate = control::read_certificate(own_credentials().worker.certificate);
  std::set<std::string> names;
  for (const unsigned char last : {1, 2}) {
    const std::vector<unsigned char> serial{0x7f, 1, 2, 3, 4, 5, 6, 7, 8, 9, last};
    ASN1_STRING_set(X509_get_serialNumber(certificate.get()), serial.data(),
                    static_cast<int>(serial.size()));
    names.insert(control::name_of(certificate.get()));
  }
  CHECK(names.size() == 2);
  for (const std::string& name : names) CHECK(is_certificate_name(name));
}

TEST_CASE("an answer that is cut at any byte gives no certificate") {
  const auto request = make_certificate_request();
  REQUIRE(request.ok());
  const auto asked = control::read_request(request->text);
  const auto ca = control::read_certificate(own_credentials().head.ca_certificate);
  const auto ca_key = control::read_key(own_credentials().ca_key);
  const auto made = control::sign(control::worker_role(3600), X509_REQ_get0_pubkey(asked.get()),
                                  ca.get(), ca_key.get());
  const std::string whole = control::format_enrolment(control::EnrolmentReply{
      own_credentials().head.ca_certificate, control::write_certificate(made.get()), {}});
  REQUIRE(control::read_answer(whole, *request, "h").ok());
  // The last line's end may be missing.
  for (std::size_t size = 0; size + 1 < whole.size(); ++size)
    REQUIRE_FALSE(control::read_answer(whole.substr(0, size), *request, "h").ok());
}

TEST_CASE("what may take the place of a certificate in use") {
  const std::int64_t now_s = unix_seconds();
  const Credentials& worker = own_credentials().worker;
  const Credentials& head = own_credentials().head;
  Credentials mixed = signed_as(control::worker_role(3600));
  mixed.private_key = worker.private_key;
  struct Row {
    const char* what;
    Credentials current, next;
    TlsSide side;
    const char* refusal;  // null: it may
  };
  for (const Row& row :
       {Row{"the next", worker, signed_as(control::worker_role(3600)), TlsSide::kClient, nullptr},
        Row{"head", head, signed_as(control::head_role(3600)), TlsSide::kServer, nullptr},
        Row{"a worker's as head's", head, worker, TlsSide::kServer, "not for a server"},
        Row{"another CA's", worker, foreign_credentials().worker, TlsSide::kClient,
            "another cluster"},
        Row{"ended", worker, ended(), TlsSide::kClient, "it ended at"},
        Row{"ended, as the other is", ended(), ended(), TlsSide::kClient, nullptr},
        Row{"another's key", worker, mixed, TlsSide::kClient, "does not belong"},
        Row{"nothing", worker, {}, TlsSide::kClient, "not readable"}}) {
    INFO(row.what);
    const Status may = may_replace(row.current, row.next, row.side, now_s);
    CHECK(may.ok() == (row.refusal == nullptr));
    if (!may.ok() && row.refusal) CHECK(may.error().message.find(row.refusal) != std::string::npos);
  }
}
