#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "actors/base/caf_host.h"
#include "actors/control/credentials.h"
#include "actors/control/head_link.h"
#include "actors/standby/standby.h"

namespace troupe {

/// Where a standby keeps what it must know after a crash of its own. Calls come inside its turns:
/// quick writes only.
class StandbyKeeper {
 public:
  virtual ~StandbyKeeper() = default;
  /// An error ends the standby: it could not keep its word.
  virtual Status keep(const FollowState& state) = 0;
  virtual void keep(const KnownLines& lines) = 0;
};

struct StandbyOptions {
  Standby::Options machine;
  HostPort listen;
  Credentials credentials;  ///< the head's: workers are to take it for one later
  std::string journal_folder;
  std::string journal_model;  ///< see journal_model()
  std::function<std::uint64_t()> random;
  StandbyKeeper* keeper = nullptr;
};

/// A standby in this process.
class StandbyNode {
 public:
  /// Listens when it returns; `link` leads to the head. `host` must outlive it.
  static Result<std::unique_ptr<StandbyNode>> start(CafHost& host, StandbyOptions options,
                                                    std::unique_ptr<HeadLink> link);
  /// What it was told is on the disk, and its port is free, when it returns.
  ~StandbyNode();

  struct Outcome {
    bool rules = false;  ///< it is the head from now on
    int code = 0;        ///< else: of its process
    std::string reason;
  };
  /// Until it ends; none when `patience` passed first.
  std::optional<Outcome> wait(Duration patience);
  /// Other credentials for sessions that begin from now on: the head's part, and a worker's for
  /// the way to the head. kInvalidArgument. Any thread.
  Status use(const Credentials& head, const Credentials& worker);
  std::uint16_t port() const;  ///< where it listens
  /// One sentence for people.
  std::string message() const;
  FollowState known() const;

 private:
  friend struct StandbyHands;
  struct Impl;
  explicit StandbyNode(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
