#pragma once

#include <functional>
#include <string>

#include "actors/control/certificate_keeper.h"
#include "actors/control/credentials.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {

/// The certificates of a head's state folder, or of its standby's: signed by the CA's key, which
/// lies beside them. Used by a CertificateWatch.
class HeadCertificate final : public HeldCertificate {
 public:
  /// Hands over what new connections are to use; any thread.
  using Use = std::function<Status(const ClusterCredentials&)>;
  HeadCertificate(ClusterFiles& files, std::int64_t lifetime_s, Use use);

  /// `say`: besides the log.
  CertificateKeeper::Options options(
      std::function<void(const std::string& sentence)> say = nullptr) const;

  std::string in_use() const override {
    return current_.head.certificate + current_.worker.certificate;
  }
  Result<std::string> read() override;
  Result<CertificateLife> adopt(const std::string& text) override;
  bool renewable() const override { return !current_.ca_key.empty(); }
  Result<CertificateLife> renew() override;
  Result<std::string> store(const std::string& expected) override;

 private:
  Result<CertificateLife> begin(ClusterCredentials next);

  ClusterFiles& files_;
  const std::int64_t lifetime_s_;
  const Use use_;
  ClusterCredentials current_;
};

/// The life of the certificate that is to be renewed first: the head's, or the join file's.
Result<CertificateLife> first_to_renew(const ClusterCredentials& credentials);

}  // namespace troupe::cli
