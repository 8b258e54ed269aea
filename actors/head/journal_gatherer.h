#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_set>
#include <vector>

#include "actors/head/frame_reader.h"
#include "actors/head/journal_folder.h"
#include "actors/router/journal.h"

namespace troupe::journal_folder {

/// What the records of one file were worth.
struct FileFindings {
  std::uint64_t unknown = 0;   ///< whole, and not to be understood
  std::string unknown_why;     ///< of the first
  std::uint64_t hints = 0;     ///< of newer versions, which this one may leave out
  std::string hint_why;        ///< of the first: of which kind
  std::uint64_t unusable = 0;  ///< behind damage: they speak of what was lost with it
};

/// Makes a journal of the frames of files in their order, and ends what cannot be trusted.
class JournalGatherer {
 public:
  explicit JournalGatherer(const Reader& reader) : reader_(reader) {}

  /// `damaged`: the heading says nothing.
  void begin_file(const journal_format::Heading& heading, bool damaged);
  /// `damaged`: something before it in the file was lost. kRefused: a newer version wrote it, and
  /// without knowing what it says nothing behind it can be trusted.
  Status add(const FrameReader::Frame& frame, bool damaged);
  FileFindings end_file();
  /// After all files: sentences for people on requests that end with an error here.
  std::vector<std::string> finish();

  /// Of the requests that go on, after finish(); empty: any.
  const std::string& numerics() const { return numerics_; }
  std::uint64_t term() const { return term_; }
  Journal take() { return std::move(journal_); }

 private:
  void use_numerics(const std::string& numerics);
  void use_masks(std::uint32_t masks);
  Status leave_out(bool hint, const Error& why);
  void add_record(const JournalRecord& record, bool damaged);
  void add_foreign(const JournalRecord& record);
  void forget_untold();
  void salvage(std::span<const std::byte> content);
  void keep_name(const JournalAccepted& accepted);
  void add_salvaged();
  void end(std::uint64_t request, const Error& why);
  void end_running(const Error& why, bool with_grammar = false);

  const Reader& reader_;
  Journal journal_;
  FileFindings findings_;
  std::optional<Error> foreign_;            ///< why nothing of this file goes on
  std::set<std::uint64_t> foreigners_;      ///< requests that only this file tells of, then
  std::set<std::uint64_t> over_;            ///< those of them that had ended
  std::unordered_set<std::uint64_t> told_;  ///< requests whose acceptance is in this file
  std::uint64_t term_ = 0;                  ///< the newest so far
  bool outdated_ = false;               ///< this file is of an earlier life than the one before it
  std::string numerics_;                ///< of what was read so far; empty: not known
  std::optional<std::uint32_t> masks_;  ///< the same
  std::set<std::uint64_t> contradicted_;  ///< requests
  /// Of requests whose acceptance is damaged: what could be read of their names.
  std::vector<std::shared_ptr<const RequestName>> salvaged_;
  std::size_t ended_ = 0;
  std::string ended_why_;  ///< the first reason
};

}  // namespace troupe::journal_folder
