#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/engine_options.h"
#include "runtime/ids.h"
#include "transport/journal_records.h"
#include "transport/protocol.h"

/// What a head, its standby and the workers say to each other, so that the standby may take over
/// when the head is gone: actors/standby/README.md has the protocol, and why it is safe.
namespace troupe {

/// standby -> head, instead of Join: it wants to follow.
struct Follow {
  ProtocolRange protocol;
  std::string version;
  std::string checkpoint_hash;
  EngineOptions engine;
  std::string address;        ///< "host:port" where it listens
  std::uint64_t standby = 0;  ///< drawn each time that it begins to follow
  std::uint64_t instead = 0;  ///< what it was before, and is no more; 0: nothing
};

/// A life of a worker.
struct WorkerLife {
  NodeId id;
  Incarnation incarnation;
  auto operator<=>(const WorkerLife&) const = default;
};

/// head -> standby: what the next head must know beside requests; the newest counts.
struct Succession {
  std::uint64_t number = 0;
  std::string cluster_id;
  std::uint32_t next_node = 1;      ///< the next new worker's id
  bool complete = false;            ///< it has all that was accepted, and may take over
  std::vector<WorkerLife> members;  ///< more than half of them must grant that
};
/// head -> standby: lines of the head's file of what it knows of the checkpoint.
struct KnownLines {
  bool begins = false;  ///< those before count no more
  std::string lines;
};
/// head -> standby: these records of the journal, at the end of that file.
struct JournalCopy {
  std::uint64_t file = 0;
  std::uint64_t mark = 0;
  bool begins = false;     ///< the file, with these
  bool tells = false;      ///< requests again
  bool completes = false;  ///< with these it tells all: those before it may go
  std::vector<JournalRecord> records;
};
/// standby -> head, at once and every kRenewEvery: what outlives the head there. The head answers
/// each with one that says the same `beat`.
struct Followed {
  std::uint64_t beat = 0;
  std::uint64_t succession = 0;  ///< its number
  std::uint64_t mark = 0;        ///< of the journal
};

/// head -> worker: who may take over, from that number on. SuccessorKnown follows.
struct Successor {
  std::uint64_t number = 0;
  std::uint64_t standby = 0;  ///< 0: nobody
  std::string address;        ///< where it listens
};
struct SuccessorKnown {
  std::uint64_t number = 0;
};

/// standby -> whoever connects, instead of Greeting, and when it changes: it is no head (yet).
struct Standing {
  std::string cluster_id;
  std::uint64_t standby = 0;
  Incarnation term;    ///< of the head that it wants to be; 0: it does not
  std::string reason;  ///< a sentence for people
};
/// worker -> standby: that life of it is over, and no older head than that term's gets it back
/// within kPledge.
struct Pledge {
  Incarnation term;
  WorkerLife life;
  std::uint64_t standby = 0;  ///< who may take over, as far as it knew
};
/// A head that was gone -> its standby: may it go on? A Standing says so if it does not speak of
/// the same standby.
struct HeadReturns {
  std::string cluster_id;
};

}  // namespace troupe
