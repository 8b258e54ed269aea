#pragma once

#include <memory>
#include <optional>
#include <string>

#include "actors/standby/standby_node.h"
#include "runtime/result.h"
#include "tools/troupe/cluster_files.h"

namespace troupe::cli {

/// What a standby keeps in its state folder, beside the journal: STATE/following, and what its next
/// life needs if that is the head's.
class StandbyFiles final : public StandbyKeeper {
 public:
  /// The folder that a standby with this --state-dir uses: the same, or the one named standby in it
  /// if the head on this machine has that. Its credentials.pem must be the head's; kNotFound with a
  /// sentence that says what to copy.
  static Result<std::string> choose_folder(const std::string& state_dir);
  /// Of a standby that ended without being told to. None: there was none.
  static Result<std::optional<FollowState>> earlier(const std::string& state_dir);

  /// Of the standby that runs with that folder. None: none does.
  static std::optional<FollowState> running(const std::string& state_dir);

  /// A standby there has become the head, and that was not stopped.
  static bool became_head(const std::string& state_dir);

  StandbyFiles(std::string state_dir, std::string known_model);

  // StandbyKeeper
  Status keep(const FollowState& state) override;
  void keep(const KnownLines& lines) override;

  /// The cluster was stopped: it follows nobody any more.
  void forget();
  /// It is the head from now on: the next ClusterFiles::open() there is a life of that head.
  Status inherit(const FollowState& state);

 private:
  const std::string state_dir_;
  const std::string known_model_;
  KnownFile known_;
};

}  // namespace troupe::cli
