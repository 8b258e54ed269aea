#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/ids.h"

/// What the tensor-parallel ranks of a replica say to each other, of transport/message.h.
namespace troupe {

/// LayerShard -> its tensor-parallel ranks: what it has of an exchange of the step.
struct RankPart {
  std::uint32_t replica = 0;
  StepId step;
  std::uint32_t exchange = 0;  ///< of the step's, counted from 1
  Payload payload;
};

// Where ranks exchange by NCCL (transport/collectives/nccl_collective.h):

/// rank -> rank 0: it has come to that exchange. By rank, its own entries are 0.
struct RankReady {
  static constexpr std::uint64_t kAny = UINT64_MAX;
  std::uint32_t replica = 0;
  StepId step;
  std::uint32_t exchange = 0;
  std::vector<std::uint64_t> to;    ///< bytes that it has for each
  std::vector<std::uint64_t> from;  ///< that must come from there; kAny: some
};
/// rank 0 -> the other ranks: all have come to that exchange; carry it out. Or, to one that has
/// come: it never has its turn.
struct RankGo {
  std::uint32_t replica = 0;
  std::uint32_t group = 0;  ///< the communicator that it goes through; 0: by messages
  std::uint64_t order = 0;  ///< in it: from 1, without gaps
  StepId step;
  std::uint32_t exchange = 0;
  bool fits = true;                 ///< what is sent is what is expected; else it fails
  std::vector<std::uint64_t> from;  ///< bytes that will come to the receiver, by rank
  bool given_up = false;            ///< rank 0 knows the step no more
};
/// Of a communicator of NCCL's. Rank 0 numbers them, rising.
struct RankGroup {
  enum class State : std::uint8_t {
    kForm,    ///< rank 0 -> the others: form it with this id
    kFormed,  ///< rank -> rank 0: it is, here
    kBroken,  ///< rank -> all others: it is no more, for that reason
  };
  std::uint32_t replica = 0;
  std::uint32_t group = 0;
  State state = State::kForm;
  CommunicatorId id{};
  std::string reason = {};
};

}  // namespace troupe
