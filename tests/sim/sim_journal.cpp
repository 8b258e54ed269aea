#include "tests/sim/sim_journal.h"

#include <chrono>
#include <utility>

#include "transport/journal_records.h"

namespace troupe::sim {

using namespace std::chrono_literals;

std::shared_ptr<Journal> SimJournal::open(SimHost& host, Owner owner) {
  host_ = &host;
  owner_ = std::move(owner);
  failed_ = false;
  auto journal = std::make_shared<Journal>();
  for (const auto& [number, file] : files_)
    for (const auto& bytes : file) {
      const auto record = transport::decode_record(bytes);
      if (!record.ok()) broken_ = record.error().message;
      if (record.ok() && journal->fits(*record)) journal->append(*record);
    }
  return journal;
}

void SimJournal::close() {
  for (const KeepRecords& records : waiting_) {
    const std::size_t count = pick(0, records.records.size());
    write(records, count);
    if (count < records.records.size()) break;
  }
  waiting_.clear();
  distrusted_ = false;
  host_ = nullptr;
}

void SimJournal::write(const KeepRecords& records, std::size_t count) {
  File& file = files_[records.file];
  for (std::size_t i = 0; i < count; ++i) {
    auto bytes = transport::encode(records.records[i]);
    if (!bytes.ok()) broken_ = bytes.error().message;
    if (bytes.ok()) file.push_back(std::move(*bytes));
  }
  if (records.completes && count == records.records.size())
    files_.erase(files_.begin(), files_.find(records.file));
}

void SimJournal::keep(KeepRecords records) {
  if (records.begins) {
    if (failed_) waiting_.clear();
    failed_ = false;
  }
  if (failed_) return;
  waiting_.push_back(std::move(records));
  if (waiting_.size() > 1) return;
  Duration takes = std::chrono::microseconds(pick(50, slow_ ? 900'000 : 20'000));
  if (pick(1, 400) == 1) takes = std::chrono::milliseconds(pick(500, 6000));  // a disk that hangs
  host_->later(takes, [this] { write_next(); });
}

void SimJournal::note(const JournalNote& note) {
  distrusted_ = note.text.starts_with("The journal cannot be written");
}

void SimJournal::write_next() {
  if (waiting_.empty()) return;
  const std::deque<KeepRecords> batch = std::exchange(waiting_, {});
  if (pick(1, 200) == 1) {  // a disk that is full
    write(batch.front(), pick(0, batch.front().records.size()));
    failed_ = true;
    owner_.failed(JournalFailed{batch.back().file, "The disk is full."});
    return;
  }
  for (const KeepRecords& records : batch) write(records, records.records.size());
  owner_.kept(JournalKept{batch.back().file, batch.back().mark});
}

}  // namespace troupe::sim
