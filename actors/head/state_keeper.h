#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "actors/supervisor/known_state.h"
#include "runtime/result.h"

namespace troupe {

/// Where a head keeps what its next life must know. All but the first call come from one thread,
/// for which the Supervisor's turns wait a moment (KeeperThread), and which may outlive the head
/// with a call that hangs. What fails is logged; the cluster goes on.
class StateKeeper {
 public:
  virtual ~StateKeeper() = default;
  /// What was kept of the checkpoint with that hash in that folder; once, before anything is kept.
  virtual Result<KnownState> known(const std::string& checkpoint_hash,
                                   const std::string& folder) = 0;
  /// The next new worker's id; called before anybody hears of the one before.
  virtual void keep_next_node(std::uint32_t next_node) = 0;
  virtual void keep_numerics(Numerics numerics) = 0;
  /// In addition; a tensor that is kept already is replaced.
  virtual void keep_tensors(const std::vector<KnownTensor>& tensors) = 0;
  virtual void keep_canary(const KnownCanary& canary) = 0;
  /// Who may take over when this life is gone; no address: nobody. Whether the next life will know.
  virtual Status keep_standby(const std::string& address) = 0;
  /// All that is known, as lines that another keeper can add to its own, and from now on `added`
  /// hears the lines that are added; null: nobody.
  virtual std::string known_lines(std::function<void(std::string lines)> added) = 0;
  /// All but the ids: the cluster was stopped.
  virtual void forget_known() = 0;
};

}  // namespace troupe
