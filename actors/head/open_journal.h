#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "actors/head/file_system.h"
#include "actors/head/journal_disk.h"
#include "actors/router/journal.h"
#include "actors/supervisor/known_state.h"
#include "runtime/ids.h"
#include "runtime/numerics.h"
#include "runtime/result.h"

namespace troupe {

/// What a head finds in its journal's folder, and how it writes on there.
struct OpenJournal {
  struct Options {
    std::shared_ptr<FileSystem> files;
    std::string folder;
    std::string model;  ///< see journal_model()
    std::string cluster;
    std::optional<Numerics> wanted;  ///< as the head was told; none: those that are known
    Incarnation incarnation;
    std::function<std::uint64_t()> random;
  };

  /// Of requests that have not ended: how many, and the tokens of the longest that one may become,
  /// prompt included.
  struct GoingOn {
    std::size_t requests = 0;
    std::int64_t longest = 0;
  };

  Journal journal;
  GoingOn going_on;
  std::uint64_t first_file = 1;  ///< of this life
  JournalDisk::Options disk;
};

/// Of those requests, for people, where new ones may have `max_model_len` tokens.
std::vector<std::string> notes_of(const OpenJournal::GoingOn& going_on, std::int64_t max_model_len);

/// Logs what was lost. Where nobody knows the cluster's numerics, `known` gets those of the
/// requests that go on. Errors: those of journal_folder::read.
Result<OpenJournal> open_journal(const OpenJournal::Options& options, KnownState& known);

}  // namespace troupe
