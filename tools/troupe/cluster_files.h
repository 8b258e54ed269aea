#pragma once

#include <cstdint>
#include <string>

#include "actors/control/credentials.h"
#include "actors/head/state_keeper.h"
#include "runtime/ids.h"
#include "runtime/result.h"
#include "tools/troupe/known_file.h"

namespace troupe::cli {

/// Where others find a head that listens there: by the name of this machine if it does everywhere.
HostPort found_at(const HostPort& listening);

/// What a head keeps in its state folder, and the lock that makes it the only one there. Files:
/// credentials.pem, join, cluster-id, incarnation, next-node, known, format, lock.
class ClusterFiles final : public StateKeeper {
 public:
  /// Makes what is missing. kUnavailable when another head uses the folder, or when it cannot be
  /// written; kCorrupt when it holds what is not ours. Either way nothing is left half-written.
  static Result<ClusterFiles> open(const std::string& state_dir);
  ClusterFiles(ClusterFiles&& other) noexcept;
  ClusterFiles& operator=(ClusterFiles&&) = delete;
  ~ClusterFiles() override;

  ClusterCredentials credentials;
  std::string cluster_id;
  Incarnation incarnation;      ///< of this life; larger than all before
  std::uint32_t next_node = 1;  ///< the next new worker's id

  // StateKeeper
  Result<KnownState> known(const std::string& checkpoint_hash,
                           const std::string& folder) override;
  void keep_next_node(std::uint32_t id) override;
  void keep_numerics(Numerics numerics) override;
  void keep_tensors(const std::vector<KnownTensor>& tensors) override;
  void keep_canary(const KnownCanary& canary) override;
  void forget_known() override;

  /// Where workers and clients find the head.
  Status write_join(const HostPort& listening) const;
  std::string join_path() const;

 private:
  explicit ClusterFiles(const std::string& state_dir);
  Status lock();
  Status check_format();
  Status load();

  std::string state_dir_;
  KnownFile known_;
  int lock_ = -1;
};

/// STATE/join, for commands that look for a head. An error says that no cluster was started there.
Result<std::string> find_join_file(const std::string& state_dir);

}  // namespace troupe::cli
