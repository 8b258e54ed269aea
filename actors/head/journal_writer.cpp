#include "actors/head/journal_writer.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

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

}  // namespace

struct JournalWriter::State {
  explicit State(Options o) : options(std::move(o)), disk(options.disk) {}
  void run();
  void tell(const Status& written, const std::deque<KeepRecords>& batch);

  const Options options;
  JournalDisk disk;  // of the thread
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<KeepRecords> queue;        // guarded by mutex
  std::size_t queued_bytes = 0;         // guarded by mutex
  std::string cluster, numerics;        // guarded by mutex; what the disk is to learn
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
                state_->options.disk.folder);
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

void JournalWriter::learn_cluster(const std::string& cluster) {
  const std::scoped_lock lock(state_->mutex);
  state_->cluster = cluster;
}

void JournalWriter::learn_numerics(const std::string& numerics) {
  const std::scoped_lock lock(state_->mutex);
  state_->numerics = numerics;
}

void JournalWriter::State::run() {
  std::unique_lock lock(mutex);
  for (;;) {
    changed.wait(lock, [&] { return closing || !queue.empty(); });
    if (queue.empty()) break;
    const std::deque<KeepRecords> batch = std::exchange(queue, {});
    queued_bytes = 0;
    if (!cluster.empty()) disk.learn_cluster(std::exchange(cluster, {}));
    if (!numerics.empty()) disk.learn_numerics(std::exchange(numerics, {}));
    lock.unlock();
    const Status written = disk.write(batch);
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
    if (std::ranges::any_of(batch, JournalDisk::must_outlive))
      options.kept({batch.back().file, batch.back().mark});
    return;
  }
  // A file that begins meanwhile would lack what was lost.
  failed = queue.empty() ? batch.back().file : queue.back().file;
  queue.clear();
  queued_bytes = 0;
  options.failed({*failed, written.error().message});
}

}  // namespace troupe
