#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "actors/control/credentials.h"
#include "actors/head/state_keeper.h"
#include "runtime/ids.h"
#include "runtime/result.h"
#include "tools/troupe/known_file.h"

namespace troupe::cli {

/// Where others find a head that listens there: at an address that leads out if it does everywhere.
HostPort found_at(const HostPort& listening);

/// What a head keeps in its state folder, and the lock that makes it the only one there. Files:
/// credentials.pem, join, cluster-id, incarnation, next-node, known, journal, standby-at, format,
/// lock, reserve (room for the next life's).
class ClusterFiles final : public StateKeeper {
 public:
  /// Makes what is missing. kUnavailable when another head uses the folder, or when it cannot be
  /// written; kCorrupt when it holds what is not ours. Either way nothing is left half-written.
  /// Certificates that are made are the head's for `lifetime_s`.
  static Result<ClusterFiles> open(const std::string& state_dir,
                                   std::int64_t lifetime_s = kCertificateLifetimeS);
  /// Whether another process is a head, or a standby, with that folder.
  static bool in_use(const std::string& state_dir);
  ClusterFiles(ClusterFiles&& other) noexcept;
  ClusterFiles& operator=(ClusterFiles&&) = delete;
  ~ClusterFiles() override;
  /// Another head, or a standby, may use the folder from now on, in this process as well. A keep_
  /// call that hangs meanwhile changes nothing beyond its next write. Any thread.
  void let_go();

  std::string cluster_id;
  Incarnation incarnation;      ///< of this life; larger than all before
  std::uint32_t next_node = 1;  ///< the next new worker's id
  std::string standby;  ///< where its standby listens, which may have become the head; empty: none

  // StateKeeper
  Result<KnownState> known(const std::string& checkpoint_hash,
                           const std::string& folder) override;
  void keep_next_node(std::uint32_t id) override;
  void keep_numerics(Numerics numerics) override;
  void keep_tensors(const std::vector<KnownTensor>& tensors) override;
  void keep_canary(const KnownCanary& canary) override;
  Status keep_standby(const std::string& address) override;
  std::string known_lines(std::function<void(std::string)> added) override;
  void forget_known() override;

  /// Those in use; any thread.
  ClusterCredentials credentials() const;
  /// Others, for the join file too; any thread.
  Status use(const ClusterCredentials& credentials);
  std::string credentials_path() const;

  /// Where workers and clients find the head: here, or else at `other`, if that is not empty.
  Status write_join(const HostPort& listening, const std::string& other = {});
  std::string join_path() const;
  /// The folder of the requests that it accepted (actors/head/journal_folder.h).
  std::string journal_path() const { return state_dir_ + "/journal"; }
  /// With all that is in it.
  void delete_journal() const;

 private:
  explicit ClusterFiles(const std::string& state_dir);
  Status lock();
  Status check_format();
  Status load(std::int64_t lifetime_s);
  Status write_heads() const;
  void reserve_room() const;
  Status in_reserve(const std::function<Status()>& write) const;

  /// What is in the join file.
  struct Joined {
    std::mutex mutex;
    ClusterCredentials credentials;  // guarded by mutex
    std::vector<std::string> heads;  // guarded by mutex: of this life
    std::string standby;             // guarded by mutex
  };
  std::string state_dir_;
  std::unique_ptr<Joined> joined_ = std::make_unique<Joined>();
  KnownFile known_;
  int lock_ = -1;
  std::atomic<bool> let_go_{false};
};

/// STATE/join, for commands that look for a head. An error says that no cluster was started there.
Result<std::string> find_join_file(const std::string& state_dir);

/// Why no head could be asked, and how to start one if none runs with that folder.
Error no_head(Error why, const std::string& state_dir);

}  // namespace troupe::cli
