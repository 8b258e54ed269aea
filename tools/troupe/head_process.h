#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "actors/base/caf_host.h"
#include "actors/control/caf_system.h"
#include "actors/control/enrolment_desk.h"
#include "actors/head/head_node.h"
#include "actors/standby/standby_asker.h"
#include "runtime/clock.h"
#include "runtime/standby_limits.h"
#include "tools/troupe/call.h"
#include "tools/troupe/cluster_files.h"
#include "tools/troupe/doubles.h"
#include "tools/troupe/flags.h"
#include "tools/troupe/head_certificate.h"

namespace troupe::cli {

/// Flags of the head, shared by up and head.
struct HeadFlags {
  EngineFlags engine;
  NetworkFlags network;
  std::string listen = "127.0.0.1:6379";
  std::string host = "127.0.0.1";
  int port = 8000;
  Api::Doors doors;
  bool expert_metrics = false;
  std::string tls_cert, tls_key;
  std::string certificate_lifetime = "365d";
  int min_devices = 0;  ///< 0: the command's own default
  bool no_journal = false;
  std::uint32_t keep_for_s = limits::kKeepFor.count();
  // Of `head` alone.
  bool keep_workers = false;
  std::string standby_of;
};
/// What is served, as flags say it, and what it is made of.
struct HeadModel {
  EngineOptions engine;
  std::shared_ptr<const Checkpoint> checkpoint;
  std::shared_ptr<const ModelFrontend> frontend;
};
/// Checks all flags of a head, and opens its model: one of `pull --for head`, too, if no tensor is
/// asked for here. Touches no state folder.
Result<HeadModel> open_head_model(const HeadFlags& flags, int min_devices, CheckpointUse use);
GatewayOptions gateway_options(const HeadFlags& flags);
void add_head_flags(Command& command, HeadFlags& flags);
/// Those of them that say where it serves and whom, not what: all but the engine's.
void add_serving_flags(Command& command, HeadFlags& flags);
/// Those of `head` that `up` has not.
void add_lone_head_flags(Command& command, HeadFlags& flags);

/// A head in this process.
class HeadProcess {
 public:
  struct Start {
    std::unique_ptr<HeadProcess> process;
    std::string follow;  ///< where its standby listens, which has become the head; then no process
  };
  /// A head whose standby may have taken over asks it first, until it answers or `interrupted`
  /// (kCancelled).
  static Result<Start> start(const CommonOptions& common, const HeadFlags& flags,
                             const HeadModel& model, const Doubles& doubles,
                             const std::function<bool()>& interrupted);
  ~HeadProcess();

  HeadNode& head() { return *head_; }
  const ClusterFiles& files() const { return *files_; }
  HostPort control_address() const { return control_; }
  /// Nudges the process's signal loop when the cluster has ended by itself (`troupe stop`).
  bool ended() const { return ended_; }
  /// The process is about to end: waits for readiness end.
  void begin_close() { closing_ = true; }
  bool closing() const { return closing_ || ended_; }

 private:
  HeadProcess(ClusterFiles files, const std::string& state_dir, const HeadFlags& flags,
              std::int64_t lifetime_s);
  void end_head();
  Status keep_certificates(std::int64_t lifetime_s);
  Result<bool> may_go_on(const std::string& state_dir, const std::function<bool()>& interrupted);
  const std::shared_ptr<ClusterFiles> files_;  ///< a disk that hangs may keep it
  const bool keeps_workers_;
  HostPort control_;
  std::unique_ptr<CafSystem> caf_;
  Post post_;
  std::unique_ptr<CafHost> host_;
  EnrolmentDesk desk_;
  std::mutex asking_;
  StandbyAsker asker_;  ///< guarded by asking_
  std::unique_ptr<HeadNode> head_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> closing_{false};
  std::thread watcher_;
  std::optional<HeadCertificate> certificate_;
  std::unique_ptr<CertificateWatch> certificate_watch_;
};

/// What a head says when requests can be served: where, and how to send one. No key is in it.
std::string ready_message(const HeadNode& head, Duration took, const CommonOptions& common,
                          const HeadFlags& flags);

}  // namespace troupe::cli
