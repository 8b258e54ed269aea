#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "actors/node_agent/messages.h"
#include "runtime/clock.h"

namespace troupe {

/// Looks at the packed weights in memory, the host's and its devices', again and again, the one
/// that has waited longest first: a bit that flipped shows as another digest. One thread of low
/// priority takes kProofShare of a core, also under load, a slice at a time; and as much as it can
/// get when all are wanted at once.
class CopyWatch {
 public:
  struct Listener {
    std::function<void(CopyDiffers)> differs;
    std::function<void()> proven;
    /// Whose memory it is in: "device 1", "this host".
    std::function<std::string(const HeldTensor&)> place;
  };
  explicit CopyWatch(Listener listener);
  ~CopyWatch();

  /// From now on, as long as somebody else holds the piece. It has just been read.
  void add(const PieceTensors& piece);
  /// Looks at a piece a last time, on the caller's thread; it is not looked at any more then.
  /// False: cancelled, and it still is.
  bool let_go(const PieceTensors& piece, const std::atomic<bool>& cancelled);
  /// Looks at all pieces at once; Listener::proven follows.
  void prove_all();
  /// Never waits.
  ProofReport report() const;

 private:
  /// A tensor of a piece.
  struct Copy {
    std::weak_ptr<const std::vector<HeldTensor>> piece;
    std::size_t tensor = 0;
    TimePoint proven;
    bool looked_at = false;  ///< once at least; before, its load is its proof
    bool of(const PieceTensors& other) const {
      return !piece.owner_before(other) && !other.owner_before(piece);
    }
  };
  void loop();
  void note();
  bool due(TimePoint time) const;
  void look(std::unique_lock<std::mutex>& lock);
  bool holds(std::unique_lock<std::mutex>& lock, const PieceTensors& piece, std::size_t tensor);
  void pause(std::unique_lock<std::mutex>& lock);
  void tell(const Copy& copy, const PieceTensors& piece);

  const Listener listener_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Copy> copies_;              // guarded by mutex_, as what follows; the oldest first
  std::optional<TimePoint> all_before_;  // copies proven before are looked at without a pause
  bool stop_ = false;
  std::atomic<std::uint32_t> parts_{0};
  std::atomic<TimePoint> oldest_{TimePoint{}};
  std::atomic<Duration> round_{Duration{}};
  double used_s_ = 0;  // of the processor, by the thread, when it paused last
  std::thread thread_;
};

}  // namespace troupe
