#include "transport/nccl/communicator.h"

#include <immintrin.h>

#include <algorithm>
#include <utility>

namespace troupe::nccl {

Communicator::~Communicator() { end(); }

void Communicator::start() {
  thread_ = std::thread([this] { work(); });
}

// --- Others' threads ----------------------------------------------------------------------------

bool Communicator::exchange(Exchange& exchange) {
  std::lock_guard lock(mutex_);
  if (broken_) return false;
  queue_.push_back(std::move(exchange));
  changed_.notify_all();
  return true;
}

void Communicator::break_up(const Error& why) {
  std::vector<Done> waiting;
  bool tell = false;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    broken_ = why;
    broken_at_ = now();
    due_ = TimePoint::max();
    tell = !closed_;
    if (current_) waiting.push_back(std::exchange(current_, nullptr));
    for (Exchange& exchange : queue_)
      if (exchange.done) waiting.push_back(std::move(exchange.done));
    queue_.clear();
    changed_.notify_all();
  }
  wake_();
  if (!tell) return;
  // First: whoever hears that an exchange failed may begin the next, which must not come here.
  options_.events.broken(why);
  for (const Done& done : waiting) done(why);
}

void Communicator::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  break_up(cancelled("The tensor-parallel ranks end."));
}

bool Communicator::broken() {
  std::lock_guard lock(mutex_);
  return broken_.has_value();
}

// --- The watchdog's -----------------------------------------------------------------------------

TimePoint Communicator::look(TimePoint now) {
  std::string at;
  {
    std::lock_guard lock(mutex_);
    if (broken_) return taken_ || out_ ? TimePoint::max() : broken_at_ + deadlines_.call;
    if (now < due_) return due_;
    at = at_;
  }
  break_up(deadline_exceeded("NCCL did not end in time: " + at + "."));
  return now;
}

/// A thread that is still within NCCL is given a moment: the abort would take from under it what it
/// uses. If it hangs there, the abort is what frees it.
bool Communicator::take_for_abort(TimePoint now) {
  std::lock_guard lock(mutex_);
  if (!broken_ || taken_ || (!out_ && now < broken_at_ + deadlines_.call)) return false;
  return taken_ = true;
}

Comm Communicator::comm() {
  std::lock_guard lock(mutex_);
  return std::exchange(comm_, nullptr);
}

void Communicator::end() {
  if (thread_.joinable()) thread_.join();
  sending_.clear();
  receiving_.clear();
  if (stream_) options_.device->close_stream(std::exchange(stream_, nullptr));
}

// --- Its own ------------------------------------------------------------------------------------

void Communicator::work() {
  {
    const Device::Current current(*options_.device);
    Status good = form();
    if (good.ok() && !broken()) options_.events.formed();
    while (good.ok()) {
      Exchange next;
      {
        std::unique_lock lock(mutex_);
        changed_.wait(lock, [&] { return broken_ || !queue_.empty(); });
        if (broken_) break;
        next = std::move(queue_.front());
        queue_.pop_front();
        current_ = std::move(next.done);
      }
      good = serve_one(std::move(next));
    }
    if (!good.ok()) break_up(good.error());
  }
  {
    std::lock_guard lock(mutex_);
    out_ = true;
  }
  wake_();
}

void Communicator::arm(std::optional<Duration> deadline, const std::string& what) {
  {
    std::lock_guard lock(mutex_);
    if (broken_) return;
    due_ = deadline ? now() + *deadline : TimePoint::max();
    at_ = what;
  }
  if (deadline) wake_();
}

/// Looks for a moment, as an exchange between two GPUs takes one; then now and then.
template <class Ready>
Status Communicator::wait(const Ready& ready) {
  const TimePoint patience = now() + limits::kRankLook;
  Duration pause = limits::kNcclPollMin;
  for (;;) {
    const auto is = ready();
    if (!is.ok()) return is.error();
    if (*is) return {};
    if (now() < patience) {
      _mm_pause();
      if (!broken()) continue;
    }
    std::unique_lock lock(mutex_);
    if (changed_.wait_for(lock, pause, [&] { return broken_.has_value(); })) return *broken_;
    pause = std::min<Duration>(2 * pause, limits::kNcclPollMax);
  }
}

/// Waits until NCCL has done what it was asked for without blocking.
Status Communicator::settle(const std::string& what) {
  return wait([&]() -> Result<bool> {
    Code state = kSuccess;
    const Status asked =
        options_.library->check(options_.library->comm_async_error(own_, &state), what);
    if (!asked.ok()) return asked.error();
    if (const Status good = options_.library->check(state, what); !good.ok()) return good.error();
    return state == kSuccess;
  });
}

Status Communicator::form() {
  const Library& nccl = *options_.library;
  arm(deadlines_.form, "to form a group of " + std::to_string(options_.rank.size) + " ranks");
  UniqueId id{};
  if (options_.id) {
    id = *options_.id;
  } else {
    const Status made = nccl.check(nccl.get_unique_id(&id), "making an id");
    if (!made.ok()) return made;
    if (broken()) return {};
    options_.events.id(id);
  }
  auto stream = options_.device->open_stream();
  if (!stream.ok()) return stream.error();
  stream_ = *stream;
  Config config;
  Comm made = nullptr;
  Status begun;
  {
    std::lock_guard calls(options_.device->calls());
    begun = nccl.check(nccl.comm_init(&made, static_cast<int>(options_.rank.size), id,
                                      static_cast<int>(options_.rank.rank), &config),
                       "forming a group");
  }
  {
    std::lock_guard lock(mutex_);
    comm_ = made;
    if (broken_) return {};
  }
  own_ = made;
  if (!begun.ok()) return begun;
  if (const Status formed = settle("forming a group"); !formed.ok()) return formed;
  arm(std::nullopt, {});
  return {};
}

Status Communicator::put_on_stream(const Exchange& exchange) {
  const Library& nccl = *options_.library;
  std::lock_guard calls(options_.device->calls());
  Status good = nccl.check(nccl.group_start(), "beginning an exchange");
  if (!good.ok()) return good;
  for (std::size_t i = 0; i < exchange.to.size(); ++i) {
    const int peer = static_cast<int>(i);
    if (broken()) return {};  // what it waited in took long, and the group may be gone
    if (good.ok() && sending_[i].bytes > 0)
      good = nccl.check(nccl.send(sending_[i].data, sending_[i].bytes, kUint8, peer, own_, stream_),
                        "sending");
    if (good.ok() && receiving_[i].bytes > 0)
      good = nccl.check(
          nccl.recv(receiving_[i].data, receiving_[i].bytes, kUint8, peer, own_, stream_),
          "receiving");
  }
  if (broken()) return {};
  // A group that was begun is ended, whatever came of it.
  const Status ended = nccl.check(nccl.group_end(), "an exchange");
  return good.ok() ? ended : good;
}

Status Communicator::serve_one(Exchange exchange) {
  arm(deadlines_.exchange, "an exchange of " + std::to_string(exchange.to.size()) + " ranks");
  sending_.assign(exchange.to.size(), {});
  receiving_.assign(exchange.to.size(), {});
  for (std::size_t rank = 0; rank < exchange.to.size(); ++rank) {
    auto part = exchange.to[rank].empty() ? Part{} : options_.device->readable(exchange.to[rank]);
    if (!part.ok()) return part.error();
    sending_[rank] = std::move(*part);
    part = exchange.from[rank] == 0 ? Part{} : options_.device->room(exchange.from[rank]);
    if (!part.ok()) return part.error();
    receiving_[rank] = std::move(*part);
  }
  if (Status put = put_on_stream(exchange); !put.ok()) return put;
  if (broken()) return {};
  if (Status begun = settle("an exchange"); !begun.ok()) return begun;
  const Status over = wait([&]() -> Result<bool> {
    // What was aborted ends on its stream like what has succeeded: NCCL is asked after the stream.
    const auto idle = options_.device->idle(stream_);
    if (!idle.ok()) return idle.error();
    if (const Status good = settle("an exchange"); !good.ok()) return good.error();
    return *idle;
  });
  if (!over.ok()) return over;
  arm(std::nullopt, {});
  std::vector<Payload> came(receiving_.size());
  for (std::size_t rank = 0; rank < came.size(); ++rank) {
    Part& part = receiving_[rank];
    if (part.bytes > 0)
      came[rank] = {std::move(part.owner), {part.data, part.bytes}, MemoryKind::kPinned};
  }
  sending_.clear();
  receiving_.clear();
  Done done;
  {
    std::lock_guard lock(mutex_);
    done = std::exchange(current_, nullptr);
  }
  if (done) done(std::move(came));
  return {};
}

}  // namespace troupe::nccl
