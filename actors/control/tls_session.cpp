#include "actors/control/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "actors/control/pem.h"

// OpenSSL keeps errors in a queue of the thread, which all sessions share: code that does not clear
// it before a call may take another session's error for his own and close a healthy connection.

namespace troupe::control {
namespace {

constexpr std::size_t kRecordBytes = 16u << 10;
constexpr long kCertificateListBytesMax = 16 << 10;

/// Whether the peer's alert is about the certificate that it was shown.
bool is_certificate_alert(int reason) {
  constexpr std::array kAlerts = {SSL_R_TLSV1_ALERT_UNKNOWN_CA,
                                  SSL_R_SSLV3_ALERT_BAD_CERTIFICATE,
                                  SSL_R_SSLV3_ALERT_CERTIFICATE_UNKNOWN,
                                  SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED,
                                  SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED,
                                  SSL_R_SSLV3_ALERT_UNSUPPORTED_CERTIFICATE,
                                  SSL_R_TLSV13_ALERT_CERTIFICATE_REQUIRED,
                                  SSL_R_TLSV1_ALERT_ACCESS_DENIED,
                                  SSL_R_TLSV1_ALERT_DECRYPT_ERROR};
  return std::ranges::find(kAlerts, reason) != kAlerts.end();
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::make(const Credentials& credentials, TlsSide side) {
  if (const Status status = check_credentials(credentials); !status.ok())
    return invalid_argument("The credentials cannot be used: " + status.error().message + ".");
  const CertificatePtr ca = read_certificate(credentials.ca_certificate);
  const CertificatePtr certificate = read_certificate(credentials.certificate);
  const KeyPtr key = read_key(credentials.private_key);

  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_method()));
  bool ok = context != nullptr;
  ok = ok && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1;
  ok = ok && SSL_CTX_use_certificate(context.get(), certificate.get()) == 1;
  ok = ok && SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  ok = ok && X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca.get()) == 1;
  // Sessions are long and few: resuming them is not worth another way in.
  ok = ok && SSL_CTX_set_num_tickets(context.get(), 0) == 1;
  if (!ok) return internal_error("TLS cannot be set up: " + take_openssl_error() + ".");
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(context.get(), kCertificateListBytesMax);
  // The machines' clocks may be apart, and a cluster's certificates end with the cluster.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()), X509_V_FLAG_NO_CHECK_TIME);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return std::shared_ptr<TlsContext>(new TlsContext(context.release(), side));
}

TlsContext::~TlsContext() { SSL_CTX_free(context_); }

TlsSession::TlsSession(std::shared_ptr<TlsContext> context)
    : context_(std::move(context)),
      ssl_(SSL_new(context_->get())),
      incoming_(BIO_new(BIO_s_mem())),
      outgoing_(BIO_new(BIO_s_mem())) {
  assert(ssl_ && incoming_ && outgoing_);
  SSL_set_bio(ssl_, incoming_, outgoing_);
  if (context_->side() == TlsSide::kServer)
    SSL_set_accept_state(ssl_);
  else
    SSL_set_connect_state(ssl_);
}

TlsSession::~TlsSession() { SSL_free(ssl_); }

void TlsSession::fail() {
  state_ = State::kFailed;
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  const long verified = SSL_get_verify_result(ssl_);
  if (verified != X509_V_OK) {
    failure_ = {true, X509_verify_cert_error_string(verified)};
    ERR_clear_error();
    return;
  }
  failure_.foreign =
      is_certificate_alert(reason) || reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
  failure_.text = take_openssl_error();
}

TlsSession::State TlsSession::receive(std::span<const char> bytes, std::vector<std::byte>& plain) {
  if (state_ == State::kFailed || state_ == State::kClosed) return state_;
  ERR_clear_error();
  if (!bytes.empty()) BIO_write(incoming_, bytes.data(), static_cast<int>(bytes.size()));
  if (state_ == State::kHandshake) {
    const int done = SSL_do_handshake(ssl_);
    if (done != 1) {
      if (SSL_get_error(ssl_, done) != SSL_ERROR_WANT_READ) fail();
      return state_;
    }
    state_ = State::kOpen;
  }
  while (true) {
    std::array<std::byte, kRecordBytes> record;
    ERR_clear_error();
    const int got = SSL_read(ssl_, record.data(), static_cast<int>(record.size()));
    if (got > 0) {
      plain.insert(plain.end(), record.begin(), record.begin() + got);
      continue;
    }
    const int error = SSL_get_error(ssl_, got);
    if (error == SSL_ERROR_ZERO_RETURN)
      state_ = State::kClosed;
    else if (error != SSL_ERROR_WANT_READ)
      fail();
    return state_;
  }
}

bool TlsSession::send(std::span<const std::byte> plain) {
  if (state_ != State::kOpen) return false;
  while (!plain.empty()) {
    const std::size_t part = std::min(plain.size(), kRecordBytes);
    ERR_clear_error();
    if (SSL_write(ssl_, plain.data(), static_cast<int>(part)) != static_cast<int>(part)) {
      fail();
      return false;
    }
    plain = plain.subspan(part);
  }
  return true;
}

void TlsSession::say_goodbye() {
  ERR_clear_error();
  if (state_ == State::kOpen || state_ == State::kClosed) SSL_shutdown(ssl_);
  ERR_clear_error();
}

std::size_t TlsSession::take_output(std::vector<char>& to) {
  const std::size_t size = BIO_ctrl_pending(outgoing_);
  if (size == 0) return 0;
  const std::size_t before = to.size();
  to.resize(before + size);
  const int got = BIO_read(outgoing_, to.data() + before, static_cast<int>(size));
  assert(got == static_cast<int>(size));
  return static_cast<std::size_t>(got);
}

}  // namespace troupe::control
