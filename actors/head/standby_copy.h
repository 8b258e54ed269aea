#pragma once

#include <atomic>
#include <cstdint>

#include "actors/head/keeper_thread.h"
#include "actors/head/session_hub.h"
#include "actors/head/state_keeper.h"
#include "actors/router/messages.h"

namespace troupe {

/// What a head keeps for its next life, said to its standby as well. A session that is too slow is
/// cut off, and its end is news for the Supervisor. Thread-safe.
class StandbyCopy {
 public:
  /// Before anything is copied; the hub must outlive all that is.
  void begin(SessionHub& hub, const Address& self);

  /// The protocol of the standby that follows now; before it is sent any records.
  void speak(std::uint32_t protocol) { protocol_ = protocol; }
  /// To `records.copy_to`.
  void copy(const KeepRecords& records);
  /// All that the keeper knows of the checkpoint, and from now on what it adds, to that session. 0:
  /// no more. A task of the KeeperThread: where the keeper hangs, it may come back when this copy
  /// is gone.
  void copy_known(std::uint32_t session, StateKeeper& keeper, const KeeperThread::Say& tell);

 private:
  void send(std::uint32_t session, MessagePtr message);

  SessionHub* hub_ = nullptr;
  std::atomic<std::uint32_t> protocol_{kProtocol.newest};
  Address self_;
};

}  // namespace troupe
