#pragma once

#include <atomic>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "actors/base/caf_host.h"
#include "actors/control/caf_system.h"
#include "actors/head/head_node.h"
#include "runtime/clock.h"
#include "tools/troupe/cli.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {

/// Flags of the head, shared by up and head.
struct HeadFlags {
  EngineFlags engine;
  NetworkFlags network;
  std::string listen = "127.0.0.1:6379";
  std::string host = "127.0.0.1";
  int port = 8000;
  Api::Doors doors;
  std::string tls_cert, tls_key;
  int min_devices = 0;  ///< 0: the command's own default
};
void add_head_flags(CLI::App* command, HeadFlags& flags);
/// Those of them that say where it serves and whom, not what: all but the engine's.
void add_serving_flags(CLI::App* command, HeadFlags& flags);

/// A head in this process.
class HeadProcess {
 public:
  static Result<std::unique_ptr<HeadProcess>> start(const CommonOptions& common,
                                                    const HeadFlags& flags, int min_devices);
  ~HeadProcess();

  HeadNode& head() { return *head_; }
  const ClusterFiles& files() const { return files_; }
  HostPort control_address() const { return control_; }
  /// Nudges the process's signal loop when the cluster has ended by itself (`troupe stop`).
  bool ended() const { return ended_; }
  /// The process is about to end: waits for readiness end.
  void begin_close() { closing_ = true; }
  bool closing() const { return closing_ || ended_; }

 private:
  explicit HeadProcess(ClusterFiles files) : files_(std::move(files)) {}
  ClusterFiles files_;
  HostPort control_;
  std::unique_ptr<CafSystem> caf_;
  Post post_;
  std::unique_ptr<CafHost> host_;
  std::unique_ptr<HeadNode> head_;
  std::atomic<bool> ended_{false};
  std::atomic<bool> closing_{false};
  std::thread watcher_;
};

/// What a head says when requests can be served: where, and how to send one. No key is in it.
std::string ready_message(const std::string& http_url, Duration took, const CommonOptions& common,
                          const HeadFlags& flags);

}  // namespace troupe::cli
