#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>

#include "actors/supervisor/expert_load.h"
#include "actors/supervisor/supervisor_effects.h"

namespace troupe {

/// How the experts' load is spread, and which layers are to get a new layout for it.
class ExpertBalance {
 public:
  void add(const ExpertCounts& counts, const ModelCosts& model, TimePoint now) {
    load_.add(counts, model, now);
  }
  const ExpertLoad& load() const { return load_; }

  /// Somebody wants all layers evened out, however little it helps.
  void ask(const Placement& active);
  /// Every few seconds: measures how even the load is, for the metrics. True if layers have to be
  /// laid out by it.
  bool check(const Placement& active, TimePoint now, SupervisorEffects& effects);
  TimePoint next_check() const { return next_check_; }

  /// Up to that many of the layers that are still to be laid out.
  std::set<std::int32_t> take_layers(std::size_t most);
  bool layers_left() const { return !layers_left_.empty(); }
  /// Puts back into the goal the layers that would gain little; `layers` keeps the others, and
  /// those that have copies on what is leaving.
  void keep_what_helps(const Placement& active, const std::set<DeviceRef>& leaving, Placement& goal,
                       std::set<std::int32_t>& layers) const;
  bool asked() const { return asked_; }
  /// New layouts have begun, or those that were asked for would gain nothing.
  void begun(TimePoint now) { last_ = now; }
  /// All layers are as they should be, or can be.
  void done() { asked_ = false; }
  /// No plan can be made.
  void give_up() { layers_left_.clear(); }
  std::optional<TimePoint> last() const { return last_; }

 private:
  ExpertLoad load_;
  std::set<std::int32_t> layers_left_;
  bool asked_ = false;
  TimePoint next_check_{};
  TimePoint next_{};  ///< by itself, not before
  std::optional<TimePoint> last_;
};

}  // namespace troupe
