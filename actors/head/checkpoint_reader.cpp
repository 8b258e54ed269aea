#include "actors/head/checkpoint_reader.h"

#include <malloc.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <span>
#include <thread>
#include <utility>

#include "model/renewed.h"
#include "model/tensor_proofs.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// Readings that may wait; the Supervisor has at most a few open, and each has a deadline there.
constexpr std::size_t kWaitingMax = 1024;

}  // namespace

/// Shared with the thread, which may hang in a read when the reader ends.
struct CheckpointReader::State {
  struct Job {
    ReadTensors wanted;
    std::function<void(TensorsRead)> done;
  };

  std::shared_ptr<const Checkpoint> checkpoint;  // the thread's
  bool reopened = false;                         // the same
  std::mutex mutex;
  std::condition_variable changed;
  std::deque<Job> waiting;  // guarded by mutex
  bool ended = false;       // guarded by mutex
  std::atomic<bool> cancelled{false};

  void loop();
  TensorsRead read(const ReadTensors& wanted);
};

CheckpointReader::CheckpointReader(std::shared_ptr<const Checkpoint> checkpoint)
    : state_(std::make_shared<State>()) {
  state_->checkpoint = std::move(checkpoint);
  std::thread([state = state_] { state->loop(); }).detach();
}

CheckpointReader::~CheckpointReader() {
  std::lock_guard lock(state_->mutex);
  state_->ended = true;
  state_->cancelled = true;
  state_->waiting.clear();
  state_->changed.notify_all();
}

void CheckpointReader::read(ReadTensors wanted, std::function<void(TensorsRead)> done) {
  std::unique_lock lock(state_->mutex);
  if (state_->waiting.size() >= kWaitingMax) {
    lock.unlock();
    return done({wanted.reading, wanted.fresh, {}, 0,
                 resource_exhausted("The head reads already."), std::move(wanted.tensors)});
  }
  state_->waiting.push_back({std::move(wanted), std::move(done)});
  state_->changed.notify_all();
}

void CheckpointReader::State::loop() {
  std::unique_lock lock(mutex);
  while (true) {
    changed.wait(lock, [&] { return ended || !waiting.empty(); });
    if (ended) return;
    const Job job = std::move(waiting.front());
    waiting.pop_front();
    lock.unlock();
    TensorsRead read = this->read(job.wanted);
    lock.lock();
    // Under the lock: whom it tells lives until the reader has ended.
    if (!ended) job.done(std::move(read));
    lock.unlock();
    malloc_trim(0);  // what reports came and were read in lies between what stays
    lock.lock();
  }
}

TensorsRead CheckpointReader::State::read(const ReadTensors& wanted) {
  TensorsRead read{wanted.reading, wanted.fresh, {}, 0, std::nullopt};
  auto now = renewed(checkpoint);
  if (!now.ok()) {
    read.error = now.error();
    read.unread = wanted.tensors;
    return read;
  }
  if (!now->why.empty()) {
    logger().warn("{}: it is opened afresh", now->why);
    checkpoint = now->checkpoint;
    reopened = true;
  }
  read.reopened = reopened;
  std::size_t count = 0;
  while (count < wanted.tensors.size() && (count == 0 || read.bytes < wanted.bytes_max))
    if (const auto found = checkpoint->find(wanted.tensors[count++]); found.ok())
      read.bytes += found->bytes;
  const auto first = std::span(wanted.tensors).first(count);
  // In a dispute each by itself: one that cannot be read says nothing of the others.
  const std::size_t together = wanted.fresh ? 1 : std::max<std::size_t>(1, count);
  for (std::size_t from = 0; from < count; from += together) {
    const auto some = first.subspan(from, std::min(together, count - from));
    if (auto status = read_proofs(*checkpoint, some, read.tensors, &cancelled); !status)
      read.error = status.error();
  }
  for (const std::string& tensor : first)
    if (read.error &&
        std::ranges::find(read.tensors, tensor, &TensorProof::tensor) == read.tensors.end())
      read.unread.push_back(tensor);
  return read;
}

}  // namespace troupe
