#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <vector>

#include "runtime/flat.h"
#include "runtime/tensor_rank.h"
#include "transport/collectives/collective.h"
#include "transport/message.h"

namespace troupe {

/// Exchanges by messages: RankParts over the bulk lane, by pointer within a process. A part may
/// come before its exchange begins here, since another rank may be ahead.
class LaneCollective final : public Collective {
 public:
  using Send = std::function<void(std::uint32_t rank, RankPart part)>;
  /// `send` is called within start(). `by_reference`: it reaches ranks of this process only.
  LaneCollective(TensorRank rank, std::uint32_t replica, Send send, bool by_reference = false)
      : rank_(rank), replica_(replica), by_reference_(by_reference), send_(std::move(send)) {}

  bool by_reference() const override { return by_reference_; }
  void start(PartsExchange exchange, Done done) override;
  bool forget(StepId step) override;
  void close() override;

  /// A part has come from that rank. What nobody can wait for is dropped.
  void arrived(std::uint32_t from, const RankPart& part);

  /// Steps of which something is kept.
  std::size_t steps() const;

 private:
  struct Waiting {
    std::vector<std::size_t> bytes;
    Done done;
  };
  struct Step {
    std::uint32_t index = 0;  ///< of the newest exchange that began here
    std::uint32_t done = 0;   ///< and of the newest that ended
    std::optional<Waiting> waiting;
    std::map<std::uint32_t, std::vector<Payload>> parts;  ///< by exchange, by rank
  };
  /// What `done` is told, once all parts are here.
  struct Complete {
    Done done;
    Result<std::vector<Payload>> parts;
  };
  bool make_room();
  std::optional<Complete> complete(Step& step);

  const TensorRank rank_;
  const std::uint32_t replica_;
  const bool by_reference_;
  const Send send_;
  mutable std::mutex mutex_;
  FlatMap<StepId, Step> steps_;  // guarded by mutex_; at most limits::kStepsInFlightMax
  FlatSet<StepId> ended_;        // guarded by mutex_; the newest
  bool closed_ = false;          // guarded by mutex_
};

}  // namespace troupe
