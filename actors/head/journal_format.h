#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "runtime/result.h"

/// The bytes of a journal's file.
///
///     heading │ the same again │ frame │ frame │ ...
///
/// A heading is a line of text in kHeadingBytes that says what all the rest depends on, with a
/// checksum; there are two, so that what breaks one of them costs nothing. A frame is a record, or
/// what a heading says from there on, or says that no file before this one is needed any more. A
/// record is a hint if versions that do not know its kind may leave it out; of other kinds that it
/// does not know a version must not guess: it does not read the file. A frame's
/// head has a number that was drawn for the file (so that nothing else is taken for a frame), a
/// serial number (so that gaps are seen) and checksums of itself and of its content.
///
/// Version 1 began with "troupe-journal-1 MODEL\n"; its frames had a length and a checksum.
namespace troupe::journal_format {

inline constexpr int kVersion = 2;
inline constexpr std::size_t kHeadingBytes = 512;
inline constexpr std::size_t kFrameHeadBytes = 40;
inline constexpr std::size_t kOldFrameHeadBytes = 12;  ///< of version 1

/// What a file's records depend on.
struct Heading {
  std::string model = {};     ///< one word, see journal_model(); empty: not known
  std::string cluster = {};   ///< one word; the same
  std::string numerics = {};  ///< their name; empty: nobody has computed yet, or not known
  std::uint64_t term = 0;     ///< the head's incarnation; 0: not known
  // Smaller ones have been used, also by requests that no file tells of any more.
  std::uint64_t next_request = 1;
  std::uint64_t next_sequence = 1;
  std::uint64_t file = 0;  ///< a number drawn for this file
  std::uint32_t masks = 0;  ///< CompiledGrammar::kMasksVersion; 0: of before there were versions
};

/// kHeadingBytes, or kInvalidArgument: a word is too long, or none.
Result<std::string> write(const Heading& heading);

struct Line {
  int version = 0;
  Heading heading;  ///< of version 2
};
/// A heading of version 2 or of a newer one. None: it is none, or damaged.
std::optional<Line> read_line(std::string_view bytes);
/// The model of a file of version 1, whose line says that alone; none: it is no such line.
std::optional<std::string> read_old_line(std::string_view bytes);

enum class Kind : std::uint32_t { kRecord = 0, kHeading = 1, kComplete = 2, kHint = 3 };
struct FrameHead {
  std::uint64_t file = 0;
  std::uint64_t serial = 0;  ///< from 0 on
  Kind kind = Kind::kRecord;
  std::uint32_t length = 0;  ///< of the content that follows
  std::uint64_t check = 0;   ///< of the content; with the head, so that it stands in one place
};
void put_frame(std::vector<std::byte>& out, const FrameHead& head,
               std::span<const std::byte> content);
/// None: it is no head, or a damaged one. At least kFrameHeadBytes.
std::optional<FrameHead> read_head(std::span<const std::byte> bytes);
bool is_whole(const FrameHead& head, std::span<const std::byte> content);

/// The same of version 1: only a content that fits tells that it is a frame.
struct OldFrameHead {
  std::uint32_t length = 0;
  std::uint64_t check = 0;
};
std::optional<OldFrameHead> read_old_head(std::span<const std::byte> bytes);
bool is_whole(const OldFrameHead& head, std::span<const std::byte> content);

}  // namespace troupe::journal_format
