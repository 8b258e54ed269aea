#include "actors/control/tls_session.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <array>
#include <cassert>

#include "actors/control/certificate_life.h"
#include "actors/control/pem.h"
#include "actors/control/signing.h"

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

/// What a client that wants a certificate asks for, in ALPN's form: a length, then the name.
constexpr std::string_view kEnrolmentProtocol = "\x0etroupe-enrol/1";
constexpr std::string_view kRenewalProtocol = "\x0etroupe-renew/1";
constexpr std::string_view kDeskProtocols = "\x0etroupe-enrol/1\x0etroupe-renew/1";

bool ask_for(SSL_CTX* context, std::string_view protocol) {
  // This one returns 0 when it succeeds.
  return SSL_CTX_set_alpn_protos(context, reinterpret_cast<const unsigned char*>(protocol.data()),
                                 static_cast<unsigned int>(protocol.size())) == 0;
}

/// The one way in without a certificate. It is asked for by name, before the server says whether it
/// wants to see one; who does not ask is refused as ever.
int choose_protocol(SSL* ssl, const unsigned char** chosen, unsigned char* chosen_size,
                    const unsigned char* offered, unsigned int offered_size, void*) {
  const auto* ours = reinterpret_cast<const unsigned char*>(kDeskProtocols.data());
  unsigned char* found = nullptr;
  if (SSL_select_next_proto(&found, chosen_size, ours,
                            static_cast<unsigned int>(kDeskProtocols.size()), offered,
                            offered_size) != OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *chosen = found;
  const std::string_view name(reinterpret_cast<const char*>(found), *chosen_size);
  if (name == kEnrolmentProtocol.substr(1)) SSL_set_verify(ssl, SSL_VERIFY_NONE, nullptr);
  return SSL_TLSEXT_ERR_OK;
}

/// The context of the session that verifies.
const TlsContext& context_of(X509_STORE_CTX* store) {
  const auto* ssl = static_cast<const SSL*>(
      X509_STORE_CTX_get_ex_data(store, SSL_get_ex_data_X509_STORE_CTX_idx()));
  return *static_cast<const TlsContext*>(SSL_CTX_get_app_data(SSL_get_SSL_CTX(ssl)));
}

/// Only the head asks what time it is: it is the one whose clock the certificates were made by.
int verify_still_good(int good, X509_STORE_CTX* store) {
  if (good != 1 || X509_STORE_CTX_get_error_depth(store) != 0) return good;
  if (context_of(store).revokes(name_of(X509_STORE_CTX_get_current_cert(store)))) {
    X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_REVOKED);
    return 0;
  }
  if (!context_of(store).asks_time()) return good;
  const auto life = life_of(write_certificate(X509_STORE_CTX_get_current_cert(store)));
  if (life.ok() && !has_ended(*life, unix_seconds())) return good;
  X509_STORE_CTX_set_error(store, X509_V_ERR_CERT_HAS_EXPIRED);
  return 0;
}

/// Trusts the certificate with the pinned hash, if it is among those that the server shows.
int verify_pinned(X509_STORE_CTX* store, void* pinned) {
  const auto& hash = *static_cast<const std::string*>(pinned);
  STACK_OF(X509)* shown = X509_STORE_CTX_get0_untrusted(store);
  for (int i = 0; i < sk_X509_num(shown); ++i) {
    if (certificate_hash(sk_X509_value(shown, i)) != hash) continue;
    STACK_OF(X509)* trusted = sk_X509_new_null();
    sk_X509_push(trusted, sk_X509_value(shown, i));
    X509_STORE_CTX_set0_trusted_stack(store, trusted);
    const int good = X509_verify_cert(store);
    sk_X509_free(trusted);
    return good;
  }
  X509_STORE_CTX_set_error(store, X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT);
  return 0;
}

/// What all contexts have in common; null if OpenSSL fails.
ContextPtr make_context() {
  ERR_clear_error();
  ContextPtr context(SSL_CTX_new(TLS_method()));
  bool ok = context != nullptr;
  ok = ok && SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION) == 1;
  // Sessions are long and few: resuming them is not worth another way in.
  ok = ok && SSL_CTX_set_num_tickets(context.get(), 0) == 1;
  if (!ok) return nullptr;
  SSL_CTX_set_session_cache_mode(context.get(), SSL_SESS_CACHE_OFF);
  SSL_CTX_set_mode(context.get(), SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_max_cert_list(context.get(), kCertificateListBytesMax);
  // The machines' clocks may be apart: see verify_still_good.
  X509_VERIFY_PARAM_set_flags(SSL_CTX_get0_param(context.get()), X509_V_FLAG_NO_CHECK_TIME);
  SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT, nullptr);
  return context;
}

}  // namespace

Result<std::shared_ptr<TlsContext>> TlsContext::make(const Credentials& credentials, TlsSide side,
                                                     bool desk) {
  if (const Status status = check_credentials(credentials); !status.ok())
    return invalid_argument("The credentials cannot be used: " + status.error().message + ".");
  const CertificatePtr ca = read_certificate(credentials.ca_certificate);
  const CertificatePtr certificate = read_certificate(credentials.certificate);
  const KeyPtr key = read_key(credentials.private_key);

  ContextPtr context = make_context();
  bool ok = context != nullptr;
  ok = ok && SSL_CTX_use_certificate(context.get(), certificate.get()) == 1;
  ok = ok && SSL_CTX_use_PrivateKey(context.get(), key.get()) == 1;
  ok = ok && X509_STORE_add_cert(SSL_CTX_get_cert_store(context.get()), ca.get()) == 1;
  // Shown too, for those who know the CA by its hash only.
  if (side == TlsSide::kServer) ok = ok && SSL_CTX_add1_chain_cert(context.get(), ca.get()) == 1;
  if (!ok) return internal_error("TLS cannot be set up: " + take_openssl_error() + ".");
  if (side == TlsSide::kServer) {
    SSL_CTX_set_verify(context.get(), SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT,
                       verify_still_good);
    if (desk) SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  } else if (desk && !ask_for(context.get(), kRenewalProtocol)) {
    return internal_error("TLS cannot be set up: " + take_openssl_error() + ".");
  }
  std::shared_ptr<TlsContext> made(new TlsContext(context.release(), side));
  made->revoked_ = {credentials.revoked.begin(), credentials.revoked.end()};
  made->asks_time_ = side == TlsSide::kServer && desk;
  SSL_CTX_set_app_data(made->get(), made.get());
  return made;
}

Result<std::shared_ptr<TlsContext>> TlsContext::make_pinned(const std::string& ca_hash) {
  ContextPtr context = make_context();
  if (!context || !ask_for(context.get(), kEnrolmentProtocol))
    return internal_error("TLS cannot be set up: " + take_openssl_error() + ".");
  std::shared_ptr<TlsContext> pinned(new TlsContext(context.release(), TlsSide::kClient));
  pinned->pinned_ = ca_hash;
  SSL_CTX_set_cert_verify_callback(pinned->get(), verify_pinned, &pinned->pinned_);
  return pinned;
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

TlsPurpose TlsSession::purpose() const {
  const unsigned char* protocol = nullptr;
  unsigned int size = 0;
  SSL_get0_alpn_selected(ssl_, &protocol, &size);
  if (size == 0) return TlsPurpose::kMessages;
  const std::string_view name(reinterpret_cast<const char*>(protocol), size);
  return name == kRenewalProtocol.substr(1) ? TlsPurpose::kRenewal : TlsPurpose::kEnrolment;
}

std::string TlsSession::peer_name() const {
  X509* certificate = SSL_get0_peer_certificate(ssl_);
  return certificate ? name_of(certificate) : std::string();
}

void TlsSession::fail() {
  state_ = State::kFailed;
  const unsigned long code = ERR_peek_error();
  const int reason = ERR_GET_LIB(code) == ERR_LIB_SSL ? ERR_GET_REASON(code) : 0;
  const long verified = SSL_get_verify_result(ssl_);
  if (verified != X509_V_OK) {
    failure_ = {true, verified == X509_V_ERR_CERT_HAS_EXPIRED, verified == X509_V_ERR_CERT_REVOKED,
                X509_verify_cert_error_string(verified)};
    ERR_clear_error();
    return;
  }
  failure_.foreign =
      is_certificate_alert(reason) || reason == SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE;
  failure_.ended = reason == SSL_R_SSLV3_ALERT_CERTIFICATE_EXPIRED;
  failure_.revoked = reason == SSL_R_SSLV3_ALERT_CERTIFICATE_REVOKED;
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
    // A second hello may ask for something else than the first, for which none was asked for.
    const bool needs_none =
        context_->side() == TlsSide::kServer && purpose() == TlsPurpose::kEnrolment;
    if (!needs_none &&
        (SSL_get0_peer_certificate(ssl_) == nullptr || SSL_get_verify_result(ssl_) != X509_V_OK)) {
      failure_ = {true, false, false, "it showed no certificate"};
      return state_ = State::kFailed;
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
