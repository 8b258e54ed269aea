#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "actors/worker/bulk_lane.h"
#include "actors/worker/link_measurement.h"

namespace troupe {

/// Measures this node's bulk connections, one at a time, and answers those who measure theirs to
/// it. No actor: what comes is taken at once, by the lane's thread, so that no mailbox and nothing
/// that runs is in what is measured, nor held up by it. Keeps no time limit of its own: NodeAgent
/// ends what lasts too long.
///
///     this node                                     its peer
///       |-- LinkProbe{sequence, reply bytes, tensor} --> |   keeps nothing
///       | <-- LinkEcho{sequence, tensor} --------------- |
///
/// Thread-safe.
class LinkMeter {
 public:
  struct Surroundings {
    BulkLane* lane = nullptr;  ///< null: nothing is ever measured
    std::function<TimePoint()> now;
    std::function<void(LinkMeasured)> report;  ///< any thread, none that waits for it
  };
  explicit LinkMeter(Surroundings around) : around_(std::move(around)) {}

  /// Which life of which node this is from now on. What was measured is dropped.
  void identify(NodeId node, Incarnation incarnation);
  /// `report` follows, unless it is ended. Takes the place of what is being measured.
  void begin(const MeasureLink& order);
  /// No `report` follows any more. 0: whichever is being measured.
  void end(std::uint64_t number);
  /// How far the one under way is, for people; empty: none is.
  std::string progress() const;

  // From the lane.
  /// Whether it was a probe or an echo.
  bool take(NodeId node, Incarnation incarnation, const Envelope& envelope);
  void peer_down(NodeId node, Incarnation incarnation, const std::string& reason);

 private:
  struct Running {
    MeasureLink order;
    LinkMeasurement measurement;
    bool is_with(NodeId node, Incarnation incarnation) const {
      return order.peer == node && order.incarnation == incarnation;
    }
  };
  // All with mutex_ held.
  std::optional<LinkMeasured> go_on();
  LinkMeasured fail(const std::string& reason);
  std::optional<LinkMeasured> on_echo(NodeId node, Incarnation incarnation, const LinkEcho& echo);
  Status send(NodeId node, Incarnation incarnation, Message message);
  Payload tensor(std::size_t bytes);

  const Surroundings around_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  NodeId self_;
  Incarnation incarnation_;
  std::optional<Running> running_;
  std::shared_ptr<const Buffer> tensor_;  ///< what all are made of, as large as was needed
};

}  // namespace troupe
