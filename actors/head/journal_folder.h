#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "actors/head/file_system.h"
#include "actors/router/journal.h"
#include "runtime/result.h"

namespace troupe {

/// STATE/journal: what a head wrote down of the requests that it accepted, in files 1.log, 2.log,
/// ... (journal_format.h), and `crashes` (head_crashes.h). Damaged ones, N.log.bad, are only for
/// people to look at.
namespace journal_folder {

/// Damaged files that are kept, the newest.
inline constexpr std::size_t kDamagedFilesMax = 3;

std::string file_path(const std::string& folder, std::uint64_t number);

/// What the head that reads it is, and has been.
struct Reader {
  std::string model;                        ///< one word, see journal_model(); empty: any
  std::string cluster;                      ///< one word; empty: any
  std::string numerics;                     ///< their name, if it has to be these; empty: any
  std::string last_numerics;                ///< of files that do not say; empty: not known
  std::optional<std::uint32_t> masks = {};  ///< CompiledGrammar::kMasksVersion; none: any
};
struct Contents {
  Journal journal;
  std::uint64_t next_file = 1;      ///< larger than all that are there
  std::uint64_t term = 0;           ///< the newest; files of lower ones that follow are not read
  std::string numerics;             ///< of the requests that go on; empty: any
  std::set<std::uint64_t> damaged;  ///< files that are to be kept aside
  std::vector<std::string> notes;   ///< sentences for people: what was lost; a few
};
/// All files, in their order. What is damaged is passed over; what cannot be computed again ends
/// with an error of its own that says why:
/// - requests of another model or cluster, or of a file that does not say of which it is;
/// - of other numerics those that could go on, of other masks those with a grammar among them;
/// - those whose acceptance is damaged, and whose tokens contradict each other.
/// What it says outlives a power cut from then on, or a note says that it may not.
/// A folder that is not there is empty. Errors: kCorrupt (written by a newer version), kUnavailable
/// (cannot be read): with what to do.
Result<Contents> read(FileSystem& files, const std::string& folder, const Reader& reader);
/// For a head that is to keep no journal. kRefused: there are requests that have not ended, of
/// whatever model; and the errors of read().
Status check_all_over(FileSystem& files, const std::string& folder);
/// Contents::next_file alone.
Result<std::uint64_t> next_file(FileSystem& files, const std::string& folder);
/// The files that are there.
Result<std::set<std::uint64_t>> numbers(FileSystem& files, const std::string& folder);

/// Takes away those of these files that are before that one, which is complete; puts aside the
/// damaged ones among them.
Status remove_before(FileSystem& files, const std::string& folder, std::uint64_t number,
                     const std::set<std::uint64_t>& these, const std::set<std::uint64_t>& damaged);

}  // namespace journal_folder
}  // namespace troupe
