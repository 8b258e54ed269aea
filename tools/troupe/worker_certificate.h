#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "actors/control/certificate_keeper.h"
#include "actors/control/credentials.h"
#include "actors/control/head_link.h"

namespace troupe::cli {

/// A worker's certificate, in its join file: renewed by the head. A file beside the head's own
/// credentials.pem is the head's, which renews it; it is only read. Used by a CertificateWatch,
/// whose thread alone touches the file: a disk that hangs holds nobody else.
class WorkerCertificate final : public HeldCertificate {
 public:
  /// `link` must outlive it.
  WorkerCertificate(std::string path, JoinFile join, HeadLink& link);

  CertificateKeeper::Options options() const;

  /// A head that was heard of: the file will name it, so that a later start knows it. Thread-safe.
  void learn(const std::string& head);

  std::string in_use() const override { return join_.worker.certificate; }
  Result<std::string> read() override;
  Result<CertificateLife> adopt(const std::string& text) override;
  bool renewable() const override { return !is_heads_; }
  Result<CertificateLife> renew() override;
  Result<std::string> store(const std::string& expected) override;

 private:
  Result<CertificateLife> begin(Credentials next);
  Result<std::string> with_heads_learnt(std::string text);

  const std::string path_;
  HeadLink& link_;
  JoinFile join_;
  const bool is_heads_;
  std::size_t asked_ = 0;
  bool unwritten_ = false;  ///< and it was said
  std::mutex mutex_;
  std::vector<std::string> learnt_;  // guarded by mutex_; not in the file yet
};

/// Whether the head of a state folder wrote that join file, and keeps it.
bool is_heads_own(const std::string& join_path);

}  // namespace troupe::cli
