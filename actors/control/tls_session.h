#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "actors/control/credentials.h"
#include "runtime/result.h"

typedef struct ssl_st SSL;
typedef struct ssl_ctx_st SSL_CTX;
typedef struct bio_st BIO;

/// TLS 1.3 over memory: bytes in, bytes out, no socket. Both sides must show a certificate of the
/// CA.
namespace troupe::control {

enum class TlsSide : std::uint8_t { kServer, kClient };

/// What a session is for, as the client asks by ALPN.
enum class TlsPurpose : std::uint8_t {
  kMessages,
  kEnrolment,  ///< the client shows no certificate: it wants one
  kRenewal,    ///< it shows one, and wants another
};

/// The keys of one side; sessions share it.
class TlsContext {
 public:
  /// With `desk`, a server also gives certificates: it talks to clients without one that ask for
  /// one; no other client may come without. A client with it asks for another one.
  static Result<std::shared_ptr<TlsContext>> make(const Credentials& credentials, TlsSide side,
                                                  bool desk = false);
  /// A client without a certificate, which asks for one. It trusts the CA whose certificate has
  /// that hash, as the server shows it.
  static Result<std::shared_ptr<TlsContext>> make_pinned(const std::string& ca_hash);
  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  SSL_CTX* get() const { return context_; }
  TlsSide side() const { return side_; }
  /// Whether a certificate of this name is taken no more.
  bool revokes(const std::string& name) const { return revoked_.contains(name); }
  bool asks_time() const { return asks_time_; }

 private:
  TlsContext(SSL_CTX* context, TlsSide side) : context_(context), side_(side) {}
  SSL_CTX* context_;
  TlsSide side_;
  std::string pinned_;  ///< the CA's hash, if only that is known
  std::set<std::string> revoked_;
  bool asks_time_ = false;  ///< its clock made the certificates
};

class TlsSession {
 public:
  enum class State : std::uint8_t {
    kHandshake,
    kOpen,    ///< the peer's certificate is good
    kClosed,  ///< the peer said that it sends no more
    kFailed,  ///< see failure()
  };
  struct Failure {
    bool foreign = false;  ///< the certificates do not belong together, as either side noticed
    // Then: the client's was good, and is no more.
    bool ended = false, revoked = false;
    std::string text;
  };

  explicit TlsSession(std::shared_ptr<TlsContext> context);
  ~TlsSession();
  TlsSession(const TlsSession&) = delete;
  TlsSession& operator=(const TlsSession&) = delete;

  /// Takes bytes of the peer and appends what they say to `plain`. A client's session begins with
  /// no bytes. Afterwards there may be output, also after a failure (the alert).
  State receive(std::span<const char> bytes, std::vector<std::byte>& plain);
  /// Only in kOpen. False: the session failed.
  bool send(std::span<const std::byte> plain);
  /// Tells the peer that nothing more comes.
  void say_goodbye();
  /// Appends what is to be sent to the peer; returns how many bytes.
  std::size_t take_output(std::vector<char>& to);

  State state() const { return state_; }
  /// What both agreed on; else kMessages. Only meaningful after the handshake.
  TlsPurpose purpose() const;
  const Failure& failure() const { return failure_; }
  /// Of the certificate that the peer has shown: see certificate_name. Empty: none.
  std::string peer_name() const;

 private:
  void fail();

  std::shared_ptr<TlsContext> context_;
  SSL* ssl_;
  BIO* incoming_;  ///< owned by ssl_
  BIO* outgoing_;  ///< owned by ssl_
  State state_ = State::kHandshake;
  Failure failure_;
};

}  // namespace troupe::control
