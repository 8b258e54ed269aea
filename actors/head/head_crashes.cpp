#include "actors/head/head_crashes.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <span>
#include <sstream>

namespace troupe {
namespace {

constexpr const char* kName = "crashes";
constexpr const char* kNone = "-";

std::string name_of(int signal) {
  const char* const name = sigabbrev_np(signal);
  return name ? "SIG" + std::string(name) : "signal " + std::to_string(signal);
}

Error given_up(std::uint32_t crashes, int signal) {
  return internal_error("The request was given up: the head crashed " + std::to_string(crashes) +
                        " times in a row at work on it, without a new token in between (the last "
                        "time by " +
                        name_of(signal) + ").");
}

std::vector<std::uint64_t> requests_of(const Journal& journal, const std::string& id) {
  std::vector<std::uint64_t> found;
  for (const auto& [number, request] : journal.all())
    if (request.prepared->name && request.prepared->name->id == id) found.push_back(number);
  return found;
}

/// Of answers: no head has crashed of them since the one that the journal knows of. It lived, or
/// ended otherwise.
void start_afresh(const std::vector<HeadCrash>& crashes, Journal& journal) {
  std::vector<JournalRecord> none;
  for (const auto& [id, known] : journal.all()) {
    if (!known.ended || known.error || known.crashes == 0) continue;
    const bool again = std::ranges::any_of(crashes, [&](const HeadCrash& crash) {
      return crash.term > known.crash_term && crash.request == known.prepared->id();
    });
    if (!again) none.push_back(JournalCrashes{id, 0, known.crash_term});
  }
  for (const JournalRecord& record : none) journal.append(record);
}

}  // namespace

std::string head_crashes_path(const std::string& journal_folder) {
  return journal_folder + "/" + kName;
}

Result<std::vector<HeadCrash>> read_head_crashes(FileSystem& files,
                                                 const std::string& journal_folder) {
  std::vector<HeadCrash> crashes;
  const auto names = files.list(journal_folder);
  if (!names.ok()) return names.error();
  if (std::ranges::count(*names, kName) == 0) return crashes;
  const auto file = files.open(head_crashes_path(journal_folder));
  if (!file.ok()) return file.error();
  std::string text(std::min<std::uint64_t>((*file)->size(), kHeadCrashesBytesMax), '\0');
  if (const Status read = (*file)->read(0, std::as_writable_bytes(std::span(text))); !read.ok())
    return read.error();
  std::istringstream lines(text.substr(0, text.rfind('\n') + 1));
  for (std::string line; std::getline(lines, line);) {
    std::istringstream words(line);
    HeadCrash crash;
    std::string more;
    if (!(words >> crash.term >> crash.signal >> crash.request) || words >> more) continue;
    if (crash.request == kNone) crash.request.clear();
    crashes.push_back(std::move(crash));
  }
  return crashes;
}

Status forget_head_crashes(FileSystem& files, const std::string& journal_folder) {
  return files.remove(head_crashes_path(journal_folder));
}

Status keep_newest_head_crash(FileSystem& files, const std::string& journal_folder) {
  const auto crashes = read_head_crashes(files, journal_folder);
  if (!crashes.ok()) return crashes.error();
  if (crashes->size() <= 1) return {};
  const std::string path = head_crashes_path(journal_folder), next = path + ".new";
  const HeadCrash& newest = crashes->back();
  const std::string line = std::to_string(newest.term) + ' ' + std::to_string(newest.signal) + ' ' +
                           (newest.request.empty() ? kNone : newest.request) + '\n';
  if (const Status gone = files.remove(next); !gone.ok()) return gone;  // of a power cut
  auto file = files.create(next);
  if (!file.ok()) return file.error();
  if (const Status put = (*file)->append(std::as_bytes(std::span(line))); !put.ok()) return put;
  if (const Status synced = (*file)->sync(); !synced.ok()) return synced;
  if (const Status named = files.rename(next, path); !named.ok()) return named;
  return files.sync_folder(journal_folder);
}

std::vector<std::string> blame(const std::vector<HeadCrash>& crashes, Journal& journal) {
  start_afresh(crashes, journal);
  std::vector<std::string> notes;
  for (const HeadCrash& crash : crashes) {
    std::string note = "An earlier life of this head crashed (" + name_of(crash.signal) + ")";
    const auto requests = requests_of(journal, crash.request);
    if (crash.request.empty() || requests.empty()) {
      notes.push_back(note + ".");
      continue;
    }
    std::uint32_t times = 0;
    for (const std::uint64_t id : requests) {
      const Journal::Request& known = *journal.request(id);
      if (crash.term > known.crash_term && !known.error)
        journal.append(JournalCrashes{id, known.crashes + 1, crash.term});
      times = std::max(times, known.crashes);
      if (known.crashes >= kHeadCrashesMax && !known.error)
        journal.append(
            JournalEnded{id, journal.last_end_unix_ms(), given_up(known.crashes, crash.signal)});
    }
    note += " at work on the request " + crash.request;
    notes.push_back(note + (times >= kHeadCrashesMax
                                ? ", which is given up."
                                : ", which is given up when " + std::to_string(kHeadCrashesMax) +
                                      " have in a row without a new token."));
  }
  return notes;
}

}  // namespace troupe
