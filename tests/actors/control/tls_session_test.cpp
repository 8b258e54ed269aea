#include "actors/control/tls_session.h"

#include <doctest/doctest.h>

#include <openssl/ssl.h>

#include <memory>

#include "tests/actors/control/support.h"

using namespace troupe;
using control::TlsSession;

TEST_CASE("who asks for a certificate only in its first hello needs one") {
  const auto context =
      *control::TlsContext::make(own_credentials().head, control::TlsSide::kServer, true);
  // It asks a client of another group for a second hello.
  REQUIRE(SSL_CTX_set1_groups_list(context->get(), "P-384") == 1);
  TlsSession server(context);

  const std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> keys(SSL_CTX_new(TLS_client_method()),
                                                               SSL_CTX_free);
  const std::unique_ptr<SSL, decltype(&SSL_free)> client(SSL_new(keys.get()), SSL_free);
  BIO* from_server = BIO_new(BIO_s_mem());
  BIO* to_server = BIO_new(BIO_s_mem());
  SSL_set_bio(client.get(), from_server, to_server);
  SSL_set_connect_state(client.get());
  SSL_set_verify(client.get(), SSL_VERIFY_NONE, nullptr);
  REQUIRE(SSL_set1_groups_list(client.get(), "X25519:P-384") == 1);
  const std::string asked = "\x0etroupe-enrol/1";
  REQUIRE(SSL_set_alpn_protos(client.get(), reinterpret_cast<const unsigned char*>(asked.data()),
                              static_cast<unsigned>(asked.size())) == 0);

  std::vector<std::byte> plain;
  for (int hello = 0; hello < 6 && server.state() == TlsSession::State::kHandshake; ++hello) {
    SSL_do_handshake(client.get());
    SSL_set_alpn_protos(client.get(), nullptr, 0);
    char* said = nullptr;
    const long size = BIO_get_mem_data(to_server, &said);
    const std::vector<char> bytes(said, said + size);
    (void)BIO_reset(to_server);
    server.receive(bytes, plain);
    std::vector<char> answer;
    server.take_output(answer);
    if (!answer.empty()) BIO_write(from_server, answer.data(), static_cast<int>(answer.size()));
  }
  CHECK(server.state() == TlsSession::State::kFailed);
  CHECK(server.failure().foreign);
}
