#include "tests/sim/sim_journal.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "actors/head/journal_folder.h"
#include "tests/sim/world.h"

namespace troupe::sim {

using namespace std::chrono_literals;

namespace {

const std::string kFolder = "state/journal";
const std::string kModel = "model";

bool accepts(const KeepRecords& records) {
  return std::ranges::any_of(records.records, [](const JournalRecord& record) {
    return std::holds_alternative<JournalAccepted>(record);
  });
}

}  // namespace

SimJournal::SimJournal(std::uint64_t seed, Mutation mutation)
    : random_(seed),
      mutation_(mutation),
      slow_(pick(1, 3) == 1),
      files_(std::make_shared<testing::ForgetfulFiles>()) {}

// --- Processes begin and end --------------------------------------------------------------------

SimJournal::Found SimJournal::open(SimHost& host, Owner owner, Incarnation head,
                                   KnownState& known) {
  begin(host, std::move(owner));
  auto open = open_journal(
      {files_, kFolder, kModel, "cluster", {}, head, [this] { return random_(); }}, known);
  if (!open.ok()) {
    broken_ = open.error().message;
    return {};
  }
  disk_ = std::make_unique<JournalDisk>(std::move(open->disk));
  return {std::make_shared<Journal>(std::move(open->journal)), open->first_file};
}

std::uint64_t SimJournal::follow(SimHost& host, Owner owner) {
  begin(host, std::move(owner));
  const auto first = journal_folder::next_file(*files_, kFolder);
  if (!first.ok()) broken_ = first.error().message;
  disk_ = std::make_unique<JournalDisk>(JournalDisk::Options{
      files_, kFolder, {.model = kModel}, {}, [this] { return random_(); }, true});
  return first.ok() ? *first : 1;
}

void SimJournal::begin(SimHost& host, Owner owner) {
  host_ = &host;
  owner_ = std::move(owner);
  writes_ = failed_ = false;
  files_->before = [this](const std::string& operation, const std::string&) {
    return before(operation);
  };
  // A dead process syncs nothing, and that is no sync that failed.
  files_->lies = [this](const std::string& operation, const std::string&) {
    return !host_->alive() || (mutation_ == Mutation::kNoSync && operation == "sync");
  };
}

void SimJournal::close(bool power_cut) {
  files_->before = {};
  files_->lies = {};
  if (power_cut) files_ = cut_ ? cut_ : files_->after_power_cut(random_());
  cut_.reset();
  waiting_.clear();
  distrusted_ = false;
  host_ = nullptr;
}

void SimJournal::learn_numerics(Numerics numerics) {
  disk_->learn_numerics(std::string(to_string(numerics)));
}

// --- The disk -----------------------------------------------------------------------------------

/// What is asked of it: its process may die there, and the power go.
Status SimJournal::before(const std::string& operation) {
  if (operation == "list" || operation == "open" || operation == "read") return {};
  if (!host_->acts()) {
    if (!cut_) cut_ = files_->after_power_cut(random_());
    return unavailable("The process is dead.");
  }
  if (!fails_in_ || (*fails_in_)-- > 0) return {};
  fails_in_.reset();
  return unavailable("The disk is full.");
}

// --- As the product's JournalWriter, in virtual time --------------------------------------------

void SimJournal::keep(KeepRecords records) {
  if (records.begins) {
    if (failed_) waiting_.clear();
    failed_ = false;
  }
  if (failed_) return;
  if (tells_early(records)) owner_.kept({records.file, records.mark});
  waiting_.push_back(std::move(records));
  if (!std::exchange(writes_, true)) write_next();
}

/// Shows that what is wrong with it is found.
bool SimJournal::tells_early(const KeepRecords& records) const {
  if (mutation_ == Mutation::kKeptEarly) return true;
  return mutation_ == Mutation::kEndsKeptEarly && !writes_ && !records.begins && !accepts(records);
}

void SimJournal::note(const JournalNote& note) {
  distrusted_ = note.text.starts_with("The journal cannot be written");
}

void SimJournal::write_next() {
  Duration takes = std::chrono::microseconds(pick(50, slow_ ? 900'000 : 20'000));
  if (pick(1, 400) == 1) takes = std::chrono::milliseconds(pick(500, 6000));  // a disk that hangs
  const Duration before = takes * pick(0, 100) / 100;
  host_->later(before, [this, rest = takes - before] { write(rest); });
}

void SimJournal::write(Duration rest) {
  const std::deque<KeepRecords> batch = std::exchange(waiting_, {});
  fails_in_.reset();
  if (pick(1, 150) == 1) fails_in_ = pick(0, batch.front().begins ? 5 : 1);
  const Status written = disk_->write(batch);
  const KeepRecords& last = batch.back();
  host_->later(rest, [this, written, file = last.file, mark = last.mark,
                      awaited = std::ranges::any_of(batch, JournalDisk::must_outlive)] {
    tell(written, file, mark, awaited);
  });
}

void SimJournal::tell(const Status& written, std::uint64_t file, std::uint64_t mark, bool awaited) {
  writes_ = false;
  if (!written.ok()) {
    failed_ = true;
    if (!waiting_.empty()) file = waiting_.back().file;
    waiting_.clear();
    host_->world().note_change();
    return owner_.failed({file, written.error().message});
  }
  if (awaited) owner_.kept({file, mark});
  if (waiting_.empty()) return;
  writes_ = true;
  write_next();
}

}  // namespace troupe::sim
