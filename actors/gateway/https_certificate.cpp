#include "actors/gateway/https_certificate.h"

#include <openssl/err.h>
#include <openssl/ssl.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "actors/control/pem.h"
#include "actors/control/private_file.h"

namespace troupe {
namespace {

using control::take_openssl_error;

constexpr std::size_t kFileBytesMax = 1u << 20;

/// A context that shows the certificates of `chain`, and proves by `key` that they are its own. The
/// error is the end of a sentence.
Result<HttpsCertificate::Context> make_context(const std::vector<control::CertificatePtr>& chain,
                                               EVP_PKEY* key) {
  ERR_clear_error();
  const HttpsCertificate::Context context(SSL_CTX_new(TLS_server_method()), SSL_CTX_free);
  bool ok = context != nullptr;
  ok = ok && SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION) == 1;
  ok = ok && SSL_CTX_use_certificate(context.get(), chain.front().get()) == 1;
  for (std::size_t i = 1; i < chain.size(); ++i)
    ok = ok && SSL_CTX_add1_chain_cert(context.get(), chain[i].get()) == 1;
  ok = ok && SSL_CTX_use_PrivateKey(context.get(), key) == 1;
  if (!ok) return invalid_argument(take_openssl_error());
  SSL_CTX_set_options(context.get(), SSL_OP_ALL);
  return context;
}

struct Pair {
  std::string cert, key;
};

/// As one text, which changes when either does. Neither has a zero in it: PEM is printable.
std::string joined(const Pair& pair) { return pair.cert + '\0' + pair.key; }

Pair split(const std::string& text) {
  const std::size_t at = text.find('\0');
  return {text.substr(0, at), text.substr(std::min(text.size(), at + 1))};
}

}  // namespace

Result<std::unique_ptr<HttpsCertificate>> HttpsCertificate::open(const std::string& cert_path,
                                                                 const std::string& key_path) {
  if (cert_path.empty() || key_path.empty())
    return invalid_argument("TLS needs both --tls-cert and --tls-key.");
  std::unique_ptr<HttpsCertificate> pair(new HttpsCertificate(cert_path, key_path));
  auto text = pair->read();
  if (!text.ok()) return invalid_argument("--tls-cert, --tls-key: " + text.error().message);
  const auto begun = pair->begin(*text);
  if (!begun.ok()) return invalid_argument("--tls-cert, --tls-key: " + begun.error().message + ".");
  pair->text_ = std::move(*text);
  return pair;
}

CertificateKeeper::Options HttpsCertificate::options() const {
  CertificateKeeper::Options options;
  options.name = "The API's certificate";
  options.file = cert_path_ == key_path_ ? cert_path_ : cert_path_ + " and " + key_path_;
  options.life = life_;
  options.text = text_;
  return options;
}

Result<std::string> HttpsCertificate::read() {
  auto cert = control::read_small_file(cert_path_, kFileBytesMax);
  if (!cert.ok()) return cert;
  auto key = control::read_small_file(key_path_, kFileBytesMax);
  if (!key.ok()) return key;
  return joined({std::move(*cert), std::move(*key)});
}

Result<CertificateLife> HttpsCertificate::adopt(const std::string& text) {
  auto life = begin(text);
  if (life.ok()) use_(context_);
  return life;
}

Result<CertificateLife> HttpsCertificate::begin(const std::string& text) {
  const Pair pair = split(text);
  const auto chain = control::read_chain(pair.cert);
  if (chain.empty()) return invalid_argument("there is no whole certificate in " + cert_path_);
  const control::KeyPtr key = control::read_key(pair.key);
  if (!key) return invalid_argument("there is no private key without a passphrase in " + key_path_);
  std::string certificate = control::write_certificate(chain.front().get());
  const auto life = life_of(certificate);
  if (!life.ok()) return life;
  // The first one is taken as it is: to serve by it is what was asked for.
  const std::int64_t now_s = unix_seconds();
  if (context_ && life->ends_s < now_s && life_.ends_s >= now_s)
    return refused("it ended at " + utc_text(life->ends_s));
  if (X509_check_private_key(chain.front().get(), key.get()) != 1) {
    ERR_clear_error();
    return invalid_argument("the key in " + key_path_ + " is not that of the certificate in " +
                            cert_path_);
  }
  auto context = make_context(chain, key.get());
  if (!context.ok())
    return invalid_argument("the certificate in " + cert_path_ +
                            " cannot be used: " + context.error().message);
  context_ = std::move(*context);
  certificate_ = std::move(certificate);
  life_ = *life;
  return life;
}

Result<CertificateLife> HttpsCertificate::renew() {
  return refused("The pair of --tls-cert and --tls-key is renewed by whoever made it.");
}

Result<std::string> HttpsCertificate::store(const std::string&) {
  return refused("The pair of --tls-cert and --tls-key is only read.");
}

}  // namespace troupe
