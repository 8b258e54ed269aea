#include "actors/head/journal_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/control/private_file.h"
#include "actors/head/journal_folder.h"
#include "runtime/limits.h"
#include "runtime/log.h"

namespace troupe {
namespace {

std::size_t bytes_of(const std::vector<TokenOutput>& tokens) {
  std::size_t bytes = 0;
  for (const TokenOutput& token : tokens)
    bytes += sizeof token + token.top.size() * sizeof(TokenLogprob);
  return bytes;
}

std::size_t bytes_of(const KeepRecords& records) {
  std::size_t bytes = sizeof records + records.records.size() * sizeof(JournalRecord);
  for (const JournalRecord& record : records.records) {
    if (const auto* tokens = std::get_if<JournalTokens>(&record)) bytes += bytes_of(tokens->tokens);
    if (const auto* prompt = std::get_if<JournalPrompt>(&record))
      bytes += bytes_of(prompt->logprobs);
    if (const auto* hidden = std::get_if<JournalHidden>(&record))
      bytes += hidden->values.size() * sizeof(float);
    if (const auto* accepted = std::get_if<JournalAccepted>(&record)) {
      bytes += accepted->prepared->prompt.size() * sizeof(TokenId);
      if (accepted->prepared->name) bytes += accepted->prepared->name->form.size();
    }
  }
  return bytes;
}

bool must_outlive(const KeepRecords& records) {
  return records.begins || records.tells ||
         std::ranges::any_of(records.records, [](const JournalRecord& record) {
           return std::holds_alternative<JournalAccepted>(record) ||
                  std::holds_alternative<JournalForgotten>(record);
         });
}

/// An open file of the folder.
class File {
 public:
  ~File() { close(); }

  Status open(const std::string& path) {
    close();
    path_ = path;
    fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_APPEND | O_CLOEXEC, 0600);
    return fd_ >= 0 ? Status() : trouble("made");
  }
  Status write(const void* data, std::size_t bytes) {
    const char* at = static_cast<const char*>(data);
    while (bytes > 0) {
      const ssize_t written = ::write(fd_, at, bytes);
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) return trouble("written");
      at += written;
      bytes -= static_cast<std::size_t>(written);
    }
    return {};
  }
  bool is_open() const { return fd_ >= 0; }
  void remove() {
    close();
    ::unlink(path_.c_str());
  }
  Status sync() { return ::fdatasync(fd_) == 0 ? Status() : trouble("brought to the disk"); }

 private:
  Status trouble(const char* what) const {
    return unavailable(path_ + " cannot be " + what + ": " + std::strerror(errno) + ".");
  }
  void close() {
    if (fd_ >= 0) ::close(fd_);
    fd_ = -1;
  }

  std::string path_;
  int fd_ = -1;
};

/// That a file is in its folder outlives a power cut as well.
void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;
  (void)::fsync(fd);
  ::close(fd);
}

}  // namespace

struct JournalWriter::State {
  explicit State(Options o) : options(std::move(o)) {}
  void run();
  Status write(const std::deque<KeepRecords>& batch);
  void tell(const Status& written, const std::deque<KeepRecords>& batch);

  const Options options;
  // Of the thread.
  File file;
  bool file_counts = false;  // somebody was told that something in it is kept
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<KeepRecords> queue;        // guarded by mutex
  std::size_t queued_bytes = 0;         // guarded by mutex
  std::optional<std::uint64_t> failed;  // guarded by mutex; the file
  bool closing = false;                 // guarded by mutex
  bool ended = true;                    // guarded by mutex; not begun, or nobody waits for its end
};

JournalWriter::JournalWriter(Options options)
    : state_(std::make_shared<State>(std::move(options))) {}

void JournalWriter::begin() {
  {
    const std::scoped_lock lock(state_->mutex);
    state_->ended = false;
  }
  std::thread([state = state_] { state->run(); }).detach();
}

JournalWriter::~JournalWriter() {
  std::unique_lock lock(state_->mutex);
  state_->closing = true;
  state_->changed.notify_all();
  if (state_->changed.wait_for(lock, limits::kActorStopDeadline, [&] { return state_->ended; }))
    return;
  state_->ended = true;
  logger().warn("the journal in {} is not written to its end: the disk does not answer",
                state_->options.folder);
}

void JournalWriter::keep(KeepRecords records) {
  std::unique_lock lock(state_->mutex);
  if (records.begins) {
    // What waits belongs to a file that was given up, or is told again by this one.
    if (state_->failed) {
      state_->queue.clear();
      state_->queued_bytes = 0;
    }
    state_->failed.reset();
  }
  if (state_->failed) return;
  const std::uint64_t file = records.file;
  state_->queued_bytes += bytes_of(records);
  state_->queue.push_back(std::move(records));
  if (state_->queued_bytes <= limits::kJournalQueueBytesMax) return state_->changed.notify_all();
  state_->failed = file;
  state_->options.failed({file, "the state folder is too slow."});
}

void JournalWriter::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return closing || !queue.empty(); });
    if (queue.empty()) break;
    const std::deque<KeepRecords> batch = std::exchange(queue, {});
    queued_bytes = 0;
    lock.unlock();
    const Status written = write(batch);
    // A disk that is full shall not be full of these.
    if (!written.ok() && file.is_open() && !file_counts) file.remove();
    lock.lock();
    if (ended) return;
    tell(written, batch);
  }
  ended = true;
  changed.notify_all();
}

/// Under the lock: whom it tells lives until the writer has ended.
void JournalWriter::State::tell(const Status& written, const std::deque<KeepRecords>& batch) {
  if (written.ok()) {
    if (std::ranges::any_of(batch, must_outlive))
      options.kept({batch.back().file, batch.back().mark});
    return;
  }
  // A file that begins meanwhile would lack what was lost.
  failed = queue.empty() ? batch.back().file : queue.back().file;
  queue.clear();
  queued_bytes = 0;
  options.failed({*failed, written.error().message});
}

Status JournalWriter::State::write(const std::deque<KeepRecords>& batch) {
  std::vector<std::byte> bytes;
  const auto flush = [&] {
    const Status written = bytes.empty() ? Status() : file.write(bytes.data(), bytes.size());
    bytes.clear();
    return written;
  };
  std::optional<std::uint64_t> complete;
  for (const KeepRecords& records : batch) {
    if (records.begins) {
      if (const Status done = flush(); !done.ok()) return done;
      // What is acknowledged with the next file must outlive with this one.
      if (file.is_open())
        if (const Status synced = file.sync(); !synced.ok()) return synced;
      if (const Status made = control::make_private_folder(options.folder); !made.ok())
        return made;
      const std::string path = journal_folder::file_path(options.folder, records.file);
      if (const Status opened = file.open(path); !opened.ok()) return opened;
      file_counts = false;
      sync_folder(options.folder);
      const std::string line = journal_folder::first_line(options.model);
      if (const Status done = file.write(line.data(), line.size()); !done.ok()) return done;
    }
    for (const JournalRecord& record : records.records)
      if (const Status kept = journal_folder::append(bytes, record); !kept.ok())
        logger().warn("a request will not outlive this head: {}", kept.error().message);
    if (records.completes) complete = records.file;
  }
  if (const Status done = flush(); !done.ok()) return done;
  if (std::ranges::none_of(batch, must_outlive)) return {};
  if (const Status synced = file.sync(); !synced.ok()) return synced;
  file_counts = true;
  if (!complete) return {};
  if (const Status removed = journal_folder::remove_before(options.folder, *complete);
      !removed.ok())
    logger().warn("{}", removed.error().message);
  return {};
}

}  // namespace troupe
