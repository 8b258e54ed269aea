#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/flat.h"
#include "runtime/limits.h"
#include "runtime/tensor_rank.h"
#include "transport/collectives/collective.h"
#include "transport/collectives/lane_collective.h"
#include "transport/message.h"
#include "transport/nccl/node.h"
#include "transport/nccl/todo.h"

namespace troupe {

/// Exchanges by NCCL: grouped sends and receives of known lengths. Never its sums, whose order
/// varies.
///
/// All ranks of a communicator must call NCCL in the same order, though several steps are in flight
/// and each rank comes to their exchanges in an order of its own. So rank 0 deals out turns:
///
///     rank 1 ── RankReady: lengths ──►┐
///     rank 2 ── RankReady: lengths ──►├ rank 0: all are here, the lengths fit
///     rank 0 ─────────────────────────┘    └── RankGo: order, lengths ──► all put it on the stream
///
/// Nobody waits within NCCL for a rank that computes, or for a step that is given up: when an
/// exchange has an order, each rank has its parts at hand, and keeps them until it is over, also if
/// the step is forgotten meanwhile, or rank 0 tells that it has forgotten it. So the exchanges of
/// one communicator go by in the order of their numbers, and only a lost message, a lost rank or
/// NCCL itself can hold one up. Each of these breaks the communicator: its waiters hear an error at
/// once, and all other ranks are told.
/// Lengths that are announced by the step (PartsExchange::kAny) travel with the turns, and one that
/// does not fit is an error for all before NCCL hears of it.
///
/// Rank 0 forms a communicator when the first exchange begins. Until all ranks have it, and after
/// it broke, until the next one is formed, exchanges that all have come to go by messages.
class NcclCollective final : public Collective,
                             public std::enable_shared_from_this<NcclCollective> {
 public:
  using Send = std::function<void(std::uint32_t rank, Message message)>;
  struct Options {
    TensorRank rank;
    std::uint32_t replica = 0;
    nccl::Carrier carrier;
    Duration retry_min = limits::kNcclRetryMin;
  };
  /// `send` is called without locks, in any thread.
  static std::shared_ptr<NcclCollective> make(Options options, Send send);
  ~NcclCollective() override;

  void start(PartsExchange exchange, Done done) override;
  bool forget(StepId step) override;
  void close() override;
  void lost(const std::string& why) override;

  /// A message has come from that rank. What fits nothing is dropped.
  void arrived(std::uint32_t from, const Message& message);

  /// Exchanges that went through NCCL; those that went by messages.
  std::uint64_t carried() const;
  std::uint64_t carried_by_messages() const;
  /// Exchanges that this rank has come to, and keeps its parts of until they have their turn.
  std::size_t pending() const;

 private:
  /// What is done once the lock is free.
  using Todo = nccl::Todo;

  /// An exchange that this rank has come to, and that has not had its turn.
  struct Pending {
    PartsExchange exchange;
    Done done;  ///< null: its step is forgotten
  };
  /// Who has come to an exchange of a step; rank 0's.
  struct Arrivals {
    std::vector<std::optional<RankReady>> ranks;
  };
  struct Group {
    std::uint32_t number = 0;  ///< 0: none
    std::shared_ptr<nccl::Communicator> communicator;
    std::vector<bool> formed;  ///< by rank; rank 0's
    bool up = false;           ///< all ranks have it; rank 0's
    TimePoint up_since{};
    std::uint64_t order = 0;                ///< of the newest exchange that was put into it
    std::map<std::uint64_t, RankGo> early;  ///< turns whose predecessors have not come
  };

  NcclCollective(Options options, Send send);
  bool leads() const { return options_.rank.rank == 0; }
  void say(std::uint32_t rank, Message message, Todo& todo);
  void say_all(const Message& message, Todo& todo);

  void ready(std::uint32_t from, RankReady ready, Todo& todo);
  bool forget(StepId step, Todo& todo);
  void refuse(std::uint32_t rank, const RankReady& ready, Todo& todo);
  void deal(StepId step, Arrivals arrivals, Todo& todo);
  bool fits(const Arrivals& arrivals) const;
  void go(RankGo turn, Todo& todo);
  void give_up(const RankGo& turn, Todo& todo);
  void carry_out(const RankGo& turn, Todo& todo);
  bool put(const RankGo& turn, Pending& pending);
  Done hear(StepId step);

  void form(std::uint32_t number, std::optional<nccl::UniqueId> id, Todo& todo);
  void formed(std::uint32_t from, std::uint32_t number);
  void heard(std::uint32_t from, const RankGroup& news, Todo& todo);
  void drop_group(std::uint32_t number, const Error& why, bool tell, Todo& todo);
  nccl::Communicator::Events events_of(std::uint32_t number);

  const Options options_;
  const Send send_;
  LaneCollective lane_;
  mutable std::mutex mutex_;
  // guarded by mutex_
  std::map<StepId, Pending> pending_;    // at most limits::kStepsInFlightMax
  std::map<StepId, Arrivals> arrivals_;  // the same
  std::map<StepId, Done> carried_out_;   // under way; the same
  FlatSet<StepId> ended_;                // the newest
  Group group_;
  std::uint32_t newest_group_ = 0;  // that was formed here, or is broken
  TimePoint form_after_{};
  Duration retry_;
  std::uint64_t carried_ = 0, by_messages_ = 0;
  bool closed_ = false;
};

}  // namespace troupe
