#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "transport/link_messages.h"

namespace troupe {

/// How one connection is measured: which probes are sent when, and what their echoes tell. First
/// round trips without a tensor, one at a time; then, of each size and in each direction, tensors
/// of which some are under way.
///
/// It is to be gentle to what else uses the connection: what is under way grows from one tensor on
/// while echoes are quick, up to kUnderWay bytes, and a phase ends after kPhaseTime or kPhaseBytes.
/// A size that would take too long on this link is left out.
class LinkMeasurement {
 public:
  static constexpr std::size_t kRoundTripsMax = 500;
  static constexpr std::size_t kRoundTripsMin = 5;
  static constexpr std::size_t kWarmUp = 5;  ///< round trips that do not count
  static constexpr std::size_t kUnderWay = 2u << 20;
  static constexpr std::size_t kPhaseBytes = 64u << 20;
  static constexpr Duration kRoundTripsTime = std::chrono::milliseconds(200);
  static constexpr Duration kPhaseTime = std::chrono::milliseconds(150);
  static constexpr Duration kQuick = std::chrono::milliseconds(10);
  static constexpr Duration kTooLong = std::chrono::milliseconds(250);

  explicit LinkMeasurement(std::vector<std::uint32_t> sizes);

  struct Probe {
    std::uint64_t sequence = 0;
    std::uint32_t bytes = 0;
    std::uint32_t reply_bytes = 0;
  };
  /// What is to be sent now.
  std::vector<Probe> next(TimePoint now);
  /// An echo with that many bytes came. False: nobody asked for such a one.
  bool echoed(std::uint64_t sequence, std::size_t bytes, TimePoint now);
  bool done() const { return phase_ == phases(); }
  LinkFigures figures() const;
  /// How far it is, for people: "after 12 round trips".
  std::string progress() const;

 private:
  /// Phase 0: round trips; then two a size, there and back.
  std::size_t phases() const { return 1 + 2 * sizes_.size(); }
  std::uint32_t size() const { return sizes_[(phase_ - 1) / 2]; }
  bool there() const { return (phase_ - 1) % 2 == 0; }
  /// The first tensor on a connection may take long, 200 ms where TCP waits for its timer.
  TimePoint phase_begin() const { return echoes_ > 0 ? first_ : begin_; }
  double rate() const;
  void end_phase(TimePoint now);
  void skip_if_slow();

  struct UnderWay {
    TimePoint sent;
    std::uint32_t reply_bytes = 0;
  };
  const std::vector<std::uint32_t> sizes_;
  std::size_t phase_ = 0;
  std::uint64_t next_sequence_ = 1;
  std::map<std::uint64_t, UnderWay> under_way_;
  std::vector<float> trips_us_;
  std::size_t warmed_up_ = 0;
  std::vector<double> rates_;  ///< of the phases behind the first; 0: left out

  // Of the phase:
  bool begun_ = false;
  TimePoint begin_{}, first_{}, last_{};  ///< first probe, first and last echo
  std::size_t sent_ = 0, echoes_ = 0;     ///< tensors
  std::size_t window_ = 1;                ///< tensors that may be under way
};

}  // namespace troupe
