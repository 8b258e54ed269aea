#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "actors/head/file_system.h"
#include "actors/router/journal.h"
#include "runtime/result.h"

namespace troupe {

/// A head that crashed by itself, as its last act wrote it down: a line "TERM SIGNAL REQUEST\n".
struct HeadCrash {
  std::uint64_t term = 0;
  int signal = 0;
  std::string request;  ///< that the thread was at work on (runtime/in_hand.h); empty: on none
};

/// STATE/journal/crashes: what heads wrote down since the journal was complete.
std::string head_crashes_path(const std::string& journal_folder);
inline constexpr std::size_t kHeadCrashesBytesMax = 1u << 20;  ///< lines behind it are not written

/// The oldest first; lines that are torn are left out. Errors: kUnavailable.
Result<std::vector<HeadCrash>> read_head_crashes(FileSystem& files,
                                                 const std::string& journal_folder);

/// A journal that is complete has counted them all: they go.
Status forget_head_crashes(FileSystem& files, const std::string& journal_folder);
/// A copy of another head's journal is complete. The newest crash is nobody's news but this
/// folder's, and stays for the day when it has a head again; those before that head has heard of,
/// or they are older than what it did.
Status keep_newest_head_crash(FileSystem& files, const std::string& journal_folder);

/// Has the journal say who was being worked on, and ends what has crashed kHeadCrashesMax heads in
/// a row: or the next one would crash of it as well. An answer, which gets no new token, starts
/// afresh with a head that did not crash of it. Sentences for people.
std::vector<std::string> blame(const std::vector<HeadCrash>& crashes, Journal& journal);

}  // namespace troupe
