#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "actors/head/file_system.h"
#include "actors/head/journal_format.h"

namespace troupe {

/// The frames of a journal's file, in their order. What is broken is passed over: by its length
/// where that can be trusted, else up to the next place where a frame is whole.
class FrameReader {
 public:
  struct Frame {
    journal_format::Kind kind = journal_format::Kind::kRecord;
    std::span<const std::byte> content;  ///< until the next call
    bool whole = true;  ///< false: of what is passed over, behind the head that it may have had
  };
  /// What was passed over.
  struct Losses {
    std::uint64_t places = 0;
    std::uint64_t bytes = 0;
    std::uint64_t first_at = 0;
    std::uint64_t frames = 0;      ///< known to be missing, by their numbers
    std::uint64_t torn_bytes = 0;  ///< at the end, where writing was cut off
    bool heading = false;          ///< what the records depend on
    bool any() const { return places > 0 || frames > 0 || heading; }
  };

  /// kUnavailable: it cannot be read. kCorrupt: a newer version wrote it.
  static Result<FrameReader> open(FileSystem& files, const std::string& path);

  /// As the file begins. Empty where that is damaged; version 1 says the model alone.
  const journal_format::Heading& heading() const { return heading_; }
  /// None: the end. kUnavailable: it cannot be read.
  Result<std::optional<Frame>> next();
  const Losses& losses() const { return losses_; }

 private:
  FrameReader(std::unique_ptr<FileSystem::Reader> file) : file_(std::move(file)) {}
  Status begin(const std::string& path);
  Status find_version();
  Result<std::optional<Frame>> next_old();
  Result<std::span<const std::byte>> view(std::uint64_t at, std::size_t count);
  std::uint64_t left(std::uint64_t at) const { return file_->size() - at; }
  Result<std::optional<std::uint64_t>> find_frame(std::uint64_t from);
  Result<std::optional<std::uint64_t>> find_old_frame(std::uint64_t from);
  Result<bool> is_old_frame(std::uint64_t at);
  Result<std::optional<Frame>> pass_over(std::uint64_t end, std::size_t head);
  Result<std::optional<Frame>> tear(std::size_t head);

  std::unique_ptr<FileSystem::Reader> file_;
  std::vector<std::byte> window_;  ///< of the file, from window_at_ on
  std::uint64_t window_at_ = 0;
  int version_ = journal_format::kVersion;
  journal_format::Heading heading_;
  std::uint64_t at_ = 0;
  std::uint64_t next_serial_ = 0;
  std::uint64_t searched_bytes_ = 0;  ///< of contents that did not fit
  Losses losses_;
};

}  // namespace troupe
