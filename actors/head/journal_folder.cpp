#include "actors/head/journal_folder.h"

#include <algorithm>
#include <charconv>
#include <map>
#include <optional>
#include <string_view>

#include "actors/head/frame_reader.h"
#include "actors/head/head_crashes.h"
#include "actors/head/journal_gatherer.h"
#include "runtime/counted.h"
#include "runtime/limits.h"

namespace troupe::journal_folder {
namespace {

constexpr std::string_view kKept = ".log";
constexpr std::string_view kDamaged = ".log.bad";
/// More than a folder has after any number of failures; whoever reads them sees what is wrong.
constexpr std::size_t kNotesMax = 16;

/// No head counts so far: such a name is somebody else's.
constexpr std::uint64_t kNumbersEnd = std::uint64_t{1} << 62;

using Numbers = std::map<std::uint64_t, std::string>;

/// The files with such names, by their numbers.
Result<Numbers> files_of(FileSystem& files, const std::string& folder, std::string_view suffix) {
  const auto names = files.list(folder);
  if (!names.ok()) return names.error();
  Numbers found;
  for (const std::string& name : *names) {
    std::uint64_t number = 0;
    const auto [end, bad] = std::from_chars(name.data(), name.data() + name.size(), number);
    const std::string_view rest(end, static_cast<std::size_t>(name.data() + name.size() - end));
    const bool ours = bad == std::errc() && number > 0 && number < kNumbersEnd;
    if (ours && rest == suffix) found[number] = folder + "/" + name;
  }
  return found;
}

/// What this head writes would not be found again.
Status check_next(std::uint64_t next, const std::string& folder) {
  if (next < kNumbersEnd) return {};
  return unavailable("No head has written " + file_path(folder, next - 1) + ": move it away.");
}

/// Nobody knows what a file that cannot be read would have said.
Error unreadable(const Error& why, const std::string& folder) {
  if (why.code != ErrorCode::kUnavailable) return why;
  return unavailable("The journal, which has the requests that an earlier life of this head "
                     "accepted, cannot be read: " + why.message +
                     " Mend that and start the head again; or move the folder " + folder +
                     " away, and those requests are lost.");
}

std::string bytes_text(std::uint64_t bytes) { return std::to_string(bytes) + " bytes"; }

/// What one file lacks, in a sentence; empty: nothing.
std::string note_of(const std::string& path, const FrameReader::Losses& losses,
                    const FileFindings& found) {
  std::string note;
  const auto add = [&](const std::string& text) { note += (note.empty() ? "" : ", ") + text; };
  if (losses.heading) add("it does not say of which model it is any more");
  if (losses.places > 0)
    add(bytes_text(losses.bytes) + " of it are damaged, the first at byte " +
        std::to_string(losses.first_at) +
        (losses.places > 1 ? " and " + std::to_string(losses.places - 1) + " more places" : ""));
  if (losses.frames > 0) add("records are missing (" + std::to_string(losses.frames) + ")");
  if (found.unknown > 0)
    add("records are not understood (" + std::to_string(found.unknown) +
        "; the first: " + found.unknown_why + ")");
  if (found.unusable > 0)
    add("records that need what is missing are left out (" + std::to_string(found.unusable) + ")");
  if (!note.empty())
    note = "The journal's file " + path + " is damaged: " + note + "; it is kept as " + path +
           ".bad. Requests that can be computed again go on.";
  if (losses.torn_bytes > 0)
    note += (note.empty() ? "" : " ") + path + " was cut off within a record: its last " +
            bytes_text(losses.torn_bytes) + " are left out.";
  if (found.hints > 0)
    note += (note.empty() ? "" : " ") + std::string("A newer version of Troupe wrote ") + path +
            ": " + counted(found.hints, "record") +
            " that it can be read without are left out (the first: " + found.hint_why + ")";
  return note;
}

void add_note(std::vector<std::string>& notes, std::string note, std::size_t& more) {
  if (note.empty()) return;
  if (notes.size() < kNotesMax)
    notes.push_back(std::move(note));
  else
    ++more;
}

Status read_file(FileSystem& files, const std::string& path, JournalGatherer& gatherer,
                 FileFindings& found, FrameReader::Losses& losses) {
  auto reader = FrameReader::open(files, path);
  if (!reader.ok()) return reader.error();
  gatherer.begin_file(reader->heading(), reader->losses().heading);
  for (;;) {
    const auto frame = reader->next();
    if (!frame.ok()) return frame.error();
    if (!*frame) break;
    if (const Status added = gatherer.add(**frame, reader->losses().any()); !added.ok())
      return corrupt("The file " + path + " was written by a newer version of Troupe: " +
                     added.error().message +
                     " Use that version, or move the folder away, and its requests are lost.");
  }
  found = gatherer.end_file();
  losses = reader->losses();
  return {};
}

}  // namespace

std::string file_path(const std::string& folder, std::uint64_t number) {
  return folder + "/" + std::to_string(number) + std::string(kKept);
}

Result<std::uint64_t> next_file(FileSystem& files, const std::string& folder) {
  const auto found = files_of(files, folder, kKept);
  if (!found.ok()) return unreadable(found.error(), folder);
  const std::uint64_t next = found->empty() ? 1 : found->rbegin()->first + 1;
  if (const Status good = check_next(next, folder); !good.ok()) return good.error();
  return next;
}

Result<std::set<std::uint64_t>> numbers(FileSystem& files, const std::string& folder) {
  const auto found = files_of(files, folder, kKept);
  if (!found.ok()) return found.error();
  std::set<std::uint64_t> out;
  for (const auto& [number, path] : *found) out.insert(number);
  return out;
}

Result<Contents> read(FileSystem& files, const std::string& folder, const Reader& reader) {
  const auto found = files_of(files, folder, kKept);
  if (!found.ok()) return unreadable(found.error(), folder);
  Contents out;
  JournalGatherer gatherer(reader);
  std::size_t more = 0;
  for (const auto& [number, path] : *found) {
    FileFindings findings;
    FrameReader::Losses losses;
    // Whoever hears of it may hear of it after a power cut as well.
    if (const Status synced = files.sync(path); !synced.ok())
      add_note(out.notes, "A power cut may take what the journal has: " + synced.error().message,
               more);
    const Status read = read_file(files, path, gatherer, findings, losses);
    if (!read.ok()) return unreadable(read.error(), folder);
    if (losses.any() || findings.unknown > 0) out.damaged.insert(number);
    add_note(out.notes, note_of(path, losses, findings), more);
    out.next_file = number + 1;
  }
  if (const Status good = check_next(out.next_file, folder); !good.ok()) return good.error();
  for (std::string& note : gatherer.finish()) add_note(out.notes, std::move(note), more);
  if (more > 0) out.notes.push_back("And " + std::to_string(more) + " more files are damaged.");
  out.term = gatherer.term();
  out.numerics = gatherer.numerics();
  out.journal = gatherer.take();
  return out;
}

Status check_all_over(FileSystem& files, const std::string& folder) {
  auto contents = read(files, folder, {});
  if (!contents.ok()) return contents.error();
  // What the next head would give up is over.
  const auto crashes = read_head_crashes(files, folder);
  if (!crashes.ok()) return unreadable(crashes.error(), folder);
  blame(*crashes, contents->journal);
  const auto running = std::ranges::count_if(contents->journal.all(),
                                             [](const auto& r) { return !r.second.ended; });
  if (running == 0) return {};
  return refused("--no-journal: in " + folder + " there " + (running == 1 ? "is " : "are ") +
                 counted(static_cast<std::size_t>(running), "request") +
                 " that an earlier life of this head accepted, and that " +
                 (running == 1 ? "has" : "have") +
                 " not ended. Start it without this flag until they have, or move that folder "
                 "away, and they are lost.");
}

Status remove_before(FileSystem& files, const std::string& folder, std::uint64_t number,
                     const std::set<std::uint64_t>& these, const std::set<std::uint64_t>& damaged) {
  const auto found = files_of(files, folder, kKept);
  if (!found.ok()) return found.error();
  for (const auto& [other, path] : *found) {
    if (other >= number) break;
    if (!these.contains(other)) continue;
    const bool keep = damaged.contains(other);
    const std::string aside = folder + "/" + std::to_string(other) + std::string(kDamaged);
    const Status gone = keep ? files.rename(path, aside) : files.remove(path);
    if (!gone.ok()) return gone;
  }
  const auto aside = files_of(files, folder, kDamaged);
  if (!aside.ok()) return aside.error();
  std::size_t too_many = aside->size() - std::min(aside->size(), kDamagedFilesMax);
  for (auto oldest = aside->begin(); too_many > 0; ++oldest, --too_many)
    if (const Status gone = files.remove(oldest->second); !gone.ok()) return gone;
  return {};
}

}  // namespace troupe::journal_folder
