#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/control/certificate_keeper.h"
#include "runtime/result.h"

typedef struct ssl_ctx_st SSL_CTX;

namespace troupe {

/// The pair of PEM files that HTTPS is served with: what certbot and the like replace. Read at the
/// start, and used by a CertificateWatch afterwards, which takes another pair for connections that
/// begin from then on. Both files are judged together: while one of them is not the other's, what
/// is in use stays.
class HttpsCertificate final : public HeldCertificate {
 public:
  using Context = std::shared_ptr<SSL_CTX>;
  /// Hands over what new connections are to use; on the watch's thread.
  using Use = std::function<void(Context)>;

  /// kInvalidArgument: the flag that names what cannot be used, and why.
  static Result<std::unique_ptr<HttpsCertificate>> open(const std::string& cert_path,
                                                        const std::string& key_path);

  const Context& context() const { return context_; }
  CertificateKeeper::Options options() const;
  /// Before the watch begins.
  void on_use(Use use) { use_ = std::move(use); }

  std::string in_use() const override { return certificate_; }
  Result<std::string> read() override;
  Result<CertificateLife> adopt(const std::string& text) override;
  /// The files' owner does that.
  bool renewable() const override { return false; }
  Result<CertificateLife> renew() override;
  Result<std::string> store(const std::string& expected) override;

 private:
  HttpsCertificate(std::string cert_path, std::string key_path)
      : cert_path_(std::move(cert_path)), key_path_(std::move(key_path)) {}

  Result<CertificateLife> begin(const std::string& text);

  const std::string cert_path_, key_path_;
  Use use_;
  std::string text_;  ///< of both files, as they were at the start
  CertificateLife life_;
  std::string certificate_;  ///< the server's, without its chain
  Context context_;
};

}  // namespace troupe
