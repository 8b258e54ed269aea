#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "model/forward/expert_pairs.h"
#include "runtime/result.h"

namespace troupe {

class Device;

/// Rows that wait for a pass over their layer's experts: those of a step on the device, or what
/// shards elsewhere asked for.
struct ExpertWork {
  virtual ~ExpertWork() = default;
  /// The outputs are written, or why not. Quick: answers leave before a step of the pass goes on.
  virtual void computed(const Status& done) = 0;
  /// After all works of the pass have heard. It may join again.
  virtual void go_on() {}

  ExpertPairs pairs;  ///< those whose experts are not in `set` are left alone
  std::shared_ptr<const ExpertSet> set;
  ExpertArithmetic* arithmetic = nullptr;
  bool express = false;  ///< it goes before others that are not late, and without them
};

/// How often a work is passed over for lower layers or express steps, before it is among the next.
inline constexpr std::uint32_t kPassedOverMax = 8;

/// What waits for the experts of one device. A pass takes all that waits at one layer, whichever
/// replicas' rows it is, so that weights are read once. It is a job at the end of the device's
/// queue: whoever is about to reach the layer joins it, and a step that is alone goes on at once.
/// The lowest layer comes first, so that steps come together instead of drifting apart; those of an
/// express step come before, in passes of their own, which are short. No row's result depends on
/// its company. Used inside the Device's jobs only.
///
/// It has no bound of its own: what waits are steps in flight and questions, which have theirs.
class ExpertPool {
 public:
  explicit ExpertPool(Device& device) : device_(device) {}
  ExpertPool(const ExpertPool&) = delete;

  /// Hears of its end once, from a later job; from this one if the device's queue is full. `keep`
  /// is what the work lies in.
  void join(ExpertWork& work, std::shared_ptr<const void> keep);
  /// Takes out a work that nobody wants any more; it hears nothing. False if it does not wait.
  bool leave(ExpertWork& work);
  /// Drops what waits: the device computes no more.
  void clear() { waiting_.clear(); }

 private:
  struct Waiting {
    ExpertWork* work = nullptr;
    std::shared_ptr<const void> keep;
    std::uint32_t passed_over = 0;
  };
  void schedule();
  void pass();
  void take_next();
  Status compute();

  Device& device_;
  std::vector<Waiting> waiting_;  // in the order they came
  bool scheduled_ = false;        // a job will take some
  bool passing_ = false;
  // Of the pass that runs.
  std::vector<Waiting> taken_;
  std::vector<const std::byte*> rows_;
  std::vector<std::int32_t> experts_;
  std::vector<std::byte*> outputs_;
  std::vector<kernels::ChosenRows> chosen_;
};

}  // namespace troupe
