#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "actors/router/journal.h"
#include "runtime/result.h"

namespace troupe {

/// STATE/journal: what a head wrote down of the requests that it accepted. Files 1.log, 2.log, ...
/// each begin with a line that says what they are and of which model; then come records, each as
/// its length, a hash and its Cap'n Proto form. A file that ends within a record was cut off: what
/// is before counts.
namespace journal_folder {

/// A record's place in a file: length and hash, little-endian, before its bytes.
inline constexpr std::size_t kFrameHeadBytes = 12;

std::string file_path(const std::string& folder, std::uint64_t number);
/// The line that a file begins with. `model`: one word for all that tokens depend on, but the
/// numerics.
std::string first_line(std::string_view model);
/// Appends a record in its frame. Errors: those of transport::encode.
Status append(std::vector<std::byte>& out, const JournalRecord& record);

struct Contents {
  Journal journal;
  std::uint64_t next_file = 1;  ///< larger than all that are there
  std::vector<std::string> notes;  ///< sentences for people: what was cut off or left out
};
/// All files, in their order. Of another model, or where the last life had other numerics, requests
/// that could go on are over, with an error that says so, and answers are forgotten: another
/// tokenizer would read them. A folder that is not there is empty. Errors: kCorrupt (written by
/// another version), kUnavailable (cannot be read).
Result<Contents> read(const std::string& folder, std::string_view model, std::int64_t now_unix_ms,
                      bool other_numerics = false);

/// Takes away the files before that one.
Status remove_before(const std::string& folder, std::uint64_t number);

}  // namespace journal_folder
}  // namespace troupe
