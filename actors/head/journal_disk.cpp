#include "actors/head/journal_disk.h"

#include <algorithm>
#include <filesystem>
#include <optional>
#include <string_view>
#include <utility>
#include <variant>

#include "actors/head/head_crashes.h"
#include "actors/head/journal_folder.h"
#include "runtime/in_hand.h"
#include "runtime/log.h"
#include "transport/journal_records.h"

namespace troupe {
namespace {

/// What its absence costs can be computed again, or is next to nothing.
bool can_be_missed(const JournalRecord& record) {
  return may_be_left_out(record) ||
         std::holds_alternative<JournalTokens>(record) ||
         std::holds_alternative<JournalPrompt>(record) ||
         std::holds_alternative<JournalHidden>(record);
}

}  // namespace

JournalDisk::JournalDisk(Options options) : options_(std::move(options)) {
  static_cast<void>(check_files());
}

/// Whoever mounts another disk there, or moves another folder there, while this head lives: what
/// that has is not read, and must not be taken away.
Status JournalDisk::check_files() {
  auto there = journal_folder::numbers(*options_.files, options_.folder);
  if (!there.ok()) return there.error();
  if (!std::exchange(listed_, true)) files_ = std::move(*there);
  const auto other = std::ranges::find_if(
      *there, [this](std::uint64_t number) { return !files_.contains(number); });
  if (other == there->end()) return {};
  return unavailable("The file " + journal_folder::file_path(options_.folder, *other) +
                     " was not there when this head began, and is not its own. To go on with what "
                     "it says, start the head again; else move it away.");
}

bool JournalDisk::must_outlive(const KeepRecords& records) {
  return records.begins || records.tells ||
         std::ranges::any_of(records.records, [](const JournalRecord& record) {
           return std::holds_alternative<JournalAccepted>(record) ||
                  std::holds_alternative<JournalForgotten>(record);
         });
}

void JournalDisk::learn_cluster(const std::string& cluster) {
  says_all_ = says_all_ && options_.heading.cluster == cluster;
  options_.heading.cluster = cluster;
}

void JournalDisk::learn_numerics(const std::string& numerics) {
  says_all_ = says_all_ && options_.heading.numerics == numerics;
  options_.heading.numerics = numerics;
}

Status JournalDisk::write(const std::deque<KeepRecords>& batch) {
  const Status written = write_all(batch);
  if (written.ok()) return written;
  // A sync that failed once may say that all is well the next time, and it is not.
  bytes_.clear();
  if (written.error().code == ErrorCode::kNotFound) {
    // What has its name is another one.
    file_ = nullptr;
    files_.erase(number_);
  }
  if (!std::exchange(file_, nullptr) || counts_) return written;
  // A disk that is full shall not be full of these.
  if (const Status gone = options_.files->remove(path_); !gone.ok())
    logger().warn("{}", gone.error().message);
  return written;
}

Status JournalDisk::write_all(const std::deque<KeepRecords>& batch) {
  std::optional<std::uint64_t> complete;
  for (const KeepRecords& records : batch) {
    if (records.begins)
      if (const Status begun = begin(records.file); !begun.ok()) return begun;
    if (!file_) return unavailable("The journal's file " + path_ + " was closed after an error.");
    if (!says_all_)
      if (const Status said = add_heading(); !said.ok()) return said;
    for (const JournalRecord& record : records.records)
      if (const Status added = add(record); !added.ok()) return added;
    if (!records.completes) continue;
    add_frame(journal_format::Kind::kComplete, {});
    complete = records.file;
  }
  if (const Status done = flush(); !done.ok()) return done;
  if (std::ranges::none_of(batch, must_outlive)) return {};
  if (const Status synced = file_->sync(); !synced.ok()) return synced;
  counts_ = true;
  if (!complete) return {};
  const Status removed = journal_folder::remove_before(*options_.files, options_.folder, *complete,
                                                       files_, options_.damaged);
  if (!removed.ok()) logger().warn("{}", removed.error().message);
  const Status counted = options_.follows
                             ? keep_newest_head_crash(*options_.files, options_.folder)
                             : forget_head_crashes(*options_.files, options_.folder);
  if (!counted.ok()) logger().warn("{}", counted.error().message);
  return {};
}

Status JournalDisk::begin(std::uint64_t number) {
  // What is acknowledged with the next file must outlive with this one.
  if (file_) {
    if (const Status done = flush(); !done.ok()) return done;
    if (const Status synced = file_->sync(); !synced.ok()) return synced;
  }
  FileSystem& files = *options_.files;
  const std::string& folder = options_.folder;
  if (const Status made = files.make_folder(folder); !made.ok()) return made;
  const std::string above = std::filesystem::path(folder).parent_path().string();
  if (const Status synced = files.sync_folder(above.empty() ? "." : above); !synced.ok())
    return synced;
  path_ = journal_folder::file_path(folder, number);
  file_.reset();
  counts_ = false;
  if (const Status ours = check_files(); !ours.ok()) return ours;
  number_ = number;
  files_.insert(number);
  auto made = files.create(path_);
  if (!made.ok()) return made.error();
  file_ = std::move(*made);
  if (const Status synced = files.sync_folder(folder); !synced.ok()) return synced;
  options_.heading.file = options_.random() | 1;  // 0 is none
  serial_ = 0;
  says_all_ = true;
  const auto heading = journal_format::write(options_.heading);
  if (!heading.ok()) return heading.error();
  for (int i = 0; i < 2; ++i)
    for (const char c : *heading) bytes_.push_back(static_cast<std::byte>(c));
  return {};
}

Status JournalDisk::add(const JournalRecord& record) {
  const auto* const accepted = std::get_if<JournalAccepted>(&record);
  const InHand hand(accepted ? accepted->prepared->id() : std::string_view());
  const auto content = transport::encode(record);
  if (!content.ok()) {
    if (!can_be_missed(record)) return content.error();
    logger().warn("a part of the journal will be missed if the head dies: {}",
                  content.error().message);
    return {};
  }
  if (accepted) {
    auto& heading = options_.heading;  // of the next file
    heading.next_request = std::max(heading.next_request, accepted->request + 1);
    heading.next_sequence = std::max(heading.next_sequence,
                                     accepted->first_sequence.value + accepted->prepared->n);
  }
  add_frame(may_be_left_out(record) ? journal_format::Kind::kHint : journal_format::Kind::kRecord,
            *content);
  return {};
}

void JournalDisk::add_frame(journal_format::Kind kind, std::span<const std::byte> content) {
  journal_format::put_frame(
      bytes_, {.file = options_.heading.file, .serial = serial_++, .kind = kind}, content);
}

Status JournalDisk::add_heading() {
  const auto heading = journal_format::write(options_.heading);
  if (!heading.ok()) return heading.error();
  add_frame(journal_format::Kind::kHeading, std::as_bytes(std::span(*heading)));
  says_all_ = true;
  return {};
}

Status JournalDisk::flush() {
  const Status written = bytes_.empty() ? Status() : file_->append(bytes_);
  bytes_.clear();
  return written;
}

}  // namespace troupe
