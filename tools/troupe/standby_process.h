#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/control/caf_system.h"
#include "actors/gateway/frontend_model.h"
#include "actors/standby/standby_door.h"
#include "actors/standby/standby_node.h"
#include "tools/troupe/head_process.h"
#include "tools/troupe/standby_files.h"

namespace troupe::cli {

/// A standby in this process: it follows a head, with the flags that it will be the head with.
class StandbyProcess {
 public:
  /// `state_dir`: see StandbyFiles::choose_folder(). `head`: "host:port".
  static Result<std::unique_ptr<StandbyProcess>> start(const std::string& state_dir,
                                                       const HeadFlags& flags,
                                                       const HeadModel& model,
                                                       const std::string& head);
  /// Its port and its folder are free when it returns.
  ~StandbyProcess();

  std::string message() const { return node_->message(); }
  std::string head() const { return node_->known().head_address; }
  /// Until it ends, or a signal ends it (code 0). If it rules, its folder is the head's.
  StandbyNode::Outcome wait(const std::function<bool()>& interrupted);

 private:
  StandbyProcess(ClusterFiles files, StandbyFiles kept)
      : files_(std::move(files)), kept_(std::move(kept)) {}

  void close();

  ClusterFiles files_;
  StandbyFiles kept_;
  std::unique_ptr<CafSystem> caf_;
  Post post_;
  std::unique_ptr<CafHost> host_;
  std::unique_ptr<StandbyNode> node_;
  std::optional<HeadCertificate> certificate_;
  std::unique_ptr<CertificateWatch> certificate_watch_;
  // What clients find that come here.
  std::unique_ptr<StandbyDoor> door_;
  std::unique_ptr<GatewayModel> gateway_model_;
  std::unique_ptr<Metrics> metrics_;
  std::unique_ptr<Gateway> gateway_;
};

}  // namespace troupe::cli
