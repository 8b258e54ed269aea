#include "actors/head/frame_reader.h"

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "runtime/limits.h"

namespace troupe {
namespace {

namespace format = journal_format;

constexpr std::size_t kNoRecord = ~std::size_t{0};
constexpr std::size_t kWindowBytes = 1u << 20;
/// The first line of any version.
constexpr std::size_t kLineBytesMax = 4096;
/// A frame of version 1 is found by trying contents: so much of them, or half a second.
constexpr std::uint64_t kSearchBytesMax = 2ull << 30;

std::string_view text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace

Result<FrameReader> FrameReader::open(FileSystem& files, const std::string& path) {
  auto file = files.open(path);
  if (!file.ok()) return file.error();
  FrameReader reader(std::move(*file));
  if (const Status begun = reader.begin(path); !begun.ok()) return begun.error();
  return reader;
}

/// `count` bytes from there on, or as many as there are.
Result<std::span<const std::byte>> FrameReader::view(std::uint64_t at, std::size_t count) {
  count = static_cast<std::size_t>(std::min<std::uint64_t>(count, left(at)));
  if (at < window_at_ || at + count > window_at_ + window_.size()) {
    const std::uint64_t bytes = std::min<std::uint64_t>(std::max(count, kWindowBytes), left(at));
    window_.resize(static_cast<std::size_t>(bytes));
    window_at_ = at;
    if (const Status read = file_->read(at, window_); !read.ok()) {
      window_.clear();
      return read.error();
    }
  }
  return std::span<const std::byte>(window_).subspan(static_cast<std::size_t>(at - window_at_),
                                                     count);
}

Status FrameReader::begin(const std::string& path) {
  const auto first = view(0, kLineBytesMax);
  if (!first.ok()) return first.error();
  const std::string_view text = text_of(*first);
  auto line = format::read_line(text);
  if (line && line->version > format::kVersion)
    return corrupt("The file " + path +
                   " was written by a newer version of Troupe (its format is " +
                   std::to_string(line->version) + ", and this version reads up to " +
                   std::to_string(format::kVersion) +
                   "); use that version, or move the folder away, and its requests are lost.");
  if (!line && text.size() > format::kHeadingBytes)
    line = format::read_line(text.substr(format::kHeadingBytes));
  if (line && line->version == format::kVersion) {
    heading_ = std::move(line->heading);
    at_ = std::min<std::uint64_t>(2 * format::kHeadingBytes, file_->size());
    return {};
  }
  if (const auto model = format::read_old_line(text)) {
    version_ = 1;
    heading_.model = *model;
    at_ = text.find('\n') + 1;
    return {};
  }
  // Writing was cut off before anything counted.
  if (file_->size() < format::kHeadingBytes) {
    const auto old = find_old_frame(0);
    if (!old.ok()) return old.error();
    if (!*old) {
      at_ = file_->size();
      losses_.torn_bytes = at_;
      return {};
    }
  }
  losses_.heading = true;
  return find_version();
}

/// Of a file whose heading is damaged: by its first frame.
Status FrameReader::find_version() {
  const auto found = find_frame(0);
  if (!found.ok()) return found.error();
  if (*found) return {};
  version_ = 1;
  return {};
}

/// What is there up to `end`, which is no frame as it stands, or not all of one. Behind a head of
/// `head` bytes it may have been a record; kNoRecord: it was none of this place.
Result<std::optional<FrameReader::Frame>> FrameReader::pass_over(std::uint64_t end,
                                                                std::size_t head) {
  Frame frame{format::Kind::kRecord, {}, false};
  const std::uint64_t bytes = end - at_;
  if (bytes > head && bytes - head <= limits::kJournalRecordBytesMax) {
    const auto all = view(at_, static_cast<std::size_t>(bytes));
    if (!all.ok()) return all.error();
    frame.content = all->subspan(head);
  }
  if (losses_.places++ == 0) losses_.first_at = at_;
  losses_.bytes += bytes;
  at_ = end;
  return std::optional(frame);
}

/// Nothing is whole from here on: here writing was cut off.
Result<std::optional<FrameReader::Frame>> FrameReader::tear(std::size_t head) {
  if (left(at_) == 0) return std::optional<Frame>();
  const Losses before = losses_;
  const std::uint64_t bytes = left(at_);
  auto frame = pass_over(file_->size(), head);
  losses_ = before;
  losses_.torn_bytes = bytes;
  return frame;
}

Result<std::optional<FrameReader::Frame>> FrameReader::next() {
  if (version_ == 1) return next_old();
  if (left(at_) < format::kFrameHeadBytes) return tear(format::kFrameHeadBytes);
  const auto bytes = view(at_, format::kFrameHeadBytes);
  if (!bytes.ok()) return bytes.error();
  const auto head = format::read_head(*bytes);
  if (!head || (heading_.file != 0 && head->file != heading_.file)) {
    const auto found = find_frame(at_ + 1);
    if (!found.ok()) return found.error();
    const std::size_t before = head ? kNoRecord : format::kFrameHeadBytes;
    return *found ? pass_over(**found, before) : tear(before);
  }
  heading_.file = head->file;
  const std::uint64_t all = format::kFrameHeadBytes + std::uint64_t{head->length};
  if (left(at_) < all) return tear(format::kFrameHeadBytes);
  if (head->serial < next_serial_) return pass_over(at_ + all, kNoRecord);
  losses_.frames += head->serial - next_serial_;
  next_serial_ = head->serial + 1;
  const auto frame = view(at_, static_cast<std::size_t>(all));
  if (!frame.ok()) return frame.error();
  const auto content = frame->subspan(format::kFrameHeadBytes);
  if (!format::is_whole(*head, content))
    return pass_over(at_ + all, format::kFrameHeadBytes);
  at_ += all;
  return std::optional(Frame{head->kind, content, true});
}

/// The next place from there on where a frame's head is whole.
Result<std::optional<std::uint64_t>> FrameReader::find_frame(std::uint64_t from) {
  while (from < file_->size() && left(from) >= format::kFrameHeadBytes) {
    const auto bytes = view(from, kWindowBytes);
    if (!bytes.ok()) return bytes.error();
    const std::size_t heads = bytes->size() - format::kFrameHeadBytes + 1;
    for (std::size_t i = 0; i < heads; ++i) {
      const auto head = bytes->subspan(i);
      const bool likely = heading_.file == 0 || std::memcmp(head.data(), &heading_.file,
                                                            sizeof heading_.file) == 0;
      if (likely && format::read_head(head)) return std::optional(from + i);
    }
    from += heads;
  }
  return std::optional<std::uint64_t>();
}

// --- Version 1 ----------------------------------------------------------------------------------

Result<std::optional<FrameReader::Frame>> FrameReader::next_old() {
  if (left(at_) < format::kOldFrameHeadBytes) return tear(format::kOldFrameHeadBytes);
  const auto whole = is_old_frame(at_);
  if (!whole.ok()) return whole.error();
  const auto bytes = view(at_, format::kOldFrameHeadBytes);
  if (!bytes.ok()) return bytes.error();
  const auto head = format::read_old_head(*bytes);
  const std::uint64_t end =
      at_ + format::kOldFrameHeadBytes + (head ? std::uint64_t{head->length} : 0);
  if (*whole) {
    const auto frame = view(at_, static_cast<std::size_t>(end - at_));
    if (!frame.ok()) return frame.error();
    at_ = end;
    return std::optional(
        Frame{format::Kind::kRecord, frame->subspan(format::kOldFrameHeadBytes), true});
  }
  // Its length is to be trusted if it leads to the next one, or to the end.
  if (head && end <= file_->size()) {
    const auto follows = end == file_->size() ? Result<bool>(true) : is_old_frame(end);
    if (!follows.ok()) return follows.error();
    if (*follows) return pass_over(end, format::kOldFrameHeadBytes);
  }
  const auto found = find_old_frame(at_ + 1);
  if (!found.ok()) return found.error();
  if (!*found && searched_bytes_ < kSearchBytesMax) return tear(format::kOldFrameHeadBytes);
  return pass_over(*found ? **found : file_->size(), format::kOldFrameHeadBytes);
}

/// Whether a frame is whole there.
Result<bool> FrameReader::is_old_frame(std::uint64_t at) {
  if (left(at) < format::kOldFrameHeadBytes) return false;
  const auto bytes = view(at, format::kOldFrameHeadBytes);
  if (!bytes.ok()) return bytes.error();
  const auto head = format::read_old_head(*bytes);
  if (!head || left(at) - format::kOldFrameHeadBytes < head->length) return false;
  const auto frame = view(at, format::kOldFrameHeadBytes + head->length);
  if (!frame.ok()) return frame.error();
  const bool whole = format::is_whole(*head, frame->subspan(format::kOldFrameHeadBytes));
  if (!whole) searched_bytes_ += head->length;
  return whole;
}

Result<std::optional<std::uint64_t>> FrameReader::find_old_frame(std::uint64_t from) {
  for (; from < file_->size() && searched_bytes_ < kSearchBytesMax; ++from) {
    const auto frame = is_old_frame(from);
    if (!frame.ok()) return frame.error();
    if (*frame) return std::optional(from);
  }
  return std::optional<std::uint64_t>();
}

}  // namespace troupe
