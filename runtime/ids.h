#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace troupe {

/// An integer that is only ever compared with its own kind.
template <class Tag, class Rep>
struct StrongId {
  Rep value = 0;
  constexpr auto operator<=>(const StrongId&) const = default;
};

/// A member of the cluster. The head is 0; a worker keeps its id when it comes back.
using NodeId = StrongId<struct NodeTag, std::uint32_t>;
/// One life of a node. Membership fences by it: a message of an older life is refused.
using Incarnation = StrongId<struct IncarnationTag, std::uint64_t>;
/// A version of the placement; versions coexist until no step uses the older one.
using PlacementVersion = StrongId<struct PlacementVersionTag, std::uint64_t>;
/// A sequence that a replica generates: one choice of one request.
using SequenceId = StrongId<struct SequenceTag, std::uint64_t>;
/// A step of one replica: ascending, and never the same in two versions of the placement.
using StepId = StrongId<struct StepTag, std::uint64_t>;

using TokenId = std::int32_t;

inline constexpr NodeId kHeadNode{0};

/// What an actor is; with its index it names the actor within its node.
enum class ActorKind : std::uint8_t {
  kNone = 0,
  kSupervisor,   ///< on the head
  kRouter,       ///< on the head
  kGateway,      ///< on the head
  kNodeAgent,    ///< one a worker
  kDevice,       ///< index: the device on its node
  kReplica,      ///< index: the replica in the cluster
  kLayerShard,   ///< index: shard_index() of runtime/placement.h
  kExpertGroup,  ///< index: the device on its node
  kClient,       ///< a program connected to the head (status, stop, embedding); index: its session
  kRank,         ///< the job of a shard that has tensor-parallel ranks; index as kLayerShard's
  kStandby,      ///< on a machine that waits to become the head
};

std::string_view to_string(ActorKind kind);

struct ActorId {
  ActorKind kind = ActorKind::kNone;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const ActorId&) const = default;
};

/// Where a message goes: logical, so that it can be kept, compared, sent and fenced.
struct Address {
  NodeId node;
  Incarnation incarnation;
  ActorId actor;
  constexpr auto operator<=>(const Address&) const = default;
};

/// A device of the cluster.
struct DeviceRef {
  NodeId node;
  std::uint32_t index = 0;
  constexpr auto operator<=>(const DeviceRef&) const = default;
};

/// An id of NCCL's, by which a communicator is formed.
using CommunicatorId = std::array<std::byte, 128>;

std::string to_string(NodeId node);              ///< "head", "node-1"
std::string to_string(const DeviceRef& device);  ///< "node-1/0"
std::string to_string(const Address& address);   ///< "node-1#7/shard-0"

}  // namespace troupe

template <class Tag, class Rep>
struct std::hash<troupe::StrongId<Tag, Rep>> {
  std::size_t operator()(const troupe::StrongId<Tag, Rep>& id) const noexcept {
    return std::hash<Rep>{}(id.value);
  }
};
template <>
struct std::hash<troupe::ActorId> {
  std::size_t operator()(const troupe::ActorId& id) const noexcept {
    return (static_cast<std::size_t>(id.kind) << 32) ^ id.index;
  }
};
