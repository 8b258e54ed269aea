#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "actors/head/file_system.h"
#include "actors/head/journal_format.h"
#include "actors/router/messages.h"
#include "runtime/result.h"

namespace troupe {

/// The files of a Router's journal as they are written. One thread.
class JournalDisk {
 public:
  struct Options {
    std::shared_ptr<FileSystem> files;
    std::string folder;  ///< is made if it is not there
    journal_format::Heading heading;  ///< of each file, but for what comes with it
    std::set<std::uint64_t> damaged;  ///< journal_folder::Contents::damaged
    std::function<std::uint64_t()> random;
    bool follows = false;  ///< it is the copy of another head's, which knows no crash of this one
  };
  /// The files that are there already were read, or will be over once this one's is complete.
  explicit JournalDisk(Options options);

  /// What files say from here on, the open one as well.
  void learn_cluster(const std::string& cluster);
  void learn_numerics(const std::string& numerics);

  /// Writes them all; where somebody waits for one of them, it is on the disk then. After an error
  /// the file is closed for good: nobody knows what of it is on the disk, and only records that
  /// begin another one may follow.
  Status write(const std::deque<KeepRecords>& batch);
  /// Whether somebody waits for it.
  static bool must_outlive(const KeepRecords& records);

 private:
  Status write_all(const std::deque<KeepRecords>& batch);
  Status check_files();
  Status begin(std::uint64_t number);
  Status add(const JournalRecord& record);
  void add_frame(journal_format::Kind kind, std::span<const std::byte> content);
  Status add_heading();
  Status flush();

  Options options_;
  std::set<std::uint64_t> files_;             ///< found at first, and written
  bool listed_ = false;                       ///< they were found
  std::unique_ptr<FileSystem::Writer> file_;  ///< none: closed
  std::string path_;                          ///< its
  std::uint64_t number_ = 0;
  bool counts_ = false;      ///< somebody was told that something in it is kept
  bool says_all_ = true;     ///< the newest heading
  std::uint64_t serial_ = 0;  ///< of the next frame
  std::vector<std::byte> bytes_;  ///< to be written
};

}  // namespace troupe
