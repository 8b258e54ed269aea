#pragma once

#include <functional>
#include <memory>
#include <string>

#include "actors/head/journal_disk.h"
#include "actors/router/messages.h"

namespace troupe {

/// Writes a Router's journal to its folder, in a thread of its own. Thread-safe.
///
/// What comes while a write is under way is written together. With an acceptance among it, it is
/// brought to the disk (fdatasync) before it counts as kept; other records are only written: what
/// they say would come out the same again.
class JournalWriter {
 public:
  struct Options {
    JournalDisk::Options disk;
    // From its thread, and `failed` from keep() as well; must not block, nor call it.
    std::function<void(JournalKept)> kept;
    std::function<void(JournalFailed)> failed;
  };
  explicit JournalWriter(Options options);
  /// Once: begins to write, and to tell; what it is given earlier waits.
  void begin();
  /// Writes what waits, unless the disk takes longer than kActorStopDeadline.
  ~JournalWriter();
  JournalWriter(const JournalWriter&) = delete;
  JournalWriter& operator=(const JournalWriter&) = delete;

  /// What files say of the records that it is given from now on.
  void learn_cluster(const std::string& cluster);
  void learn_numerics(const std::string& numerics);
  /// Never blocks. After a failure only records that begin a file are taken.
  void keep(KeepRecords records);

 private:
  struct State;
  std::shared_ptr<State> state_;  // A disk that hangs keeps the thread, which shares it.
};

}  // namespace troupe
