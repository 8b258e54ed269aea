#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "runtime/buffer.h"
#include "runtime/ids.h"
#include "runtime/result.h"

/// What is said of the bulk connections between workers, and what measures them, of
/// transport/message.h (actors/supervisor/network_bench.h has how the latter goes).
namespace troupe {

/// What a bulk-lane connection must present; drawn by the Supervisor for each pair of nodes.
using FabricToken = std::array<std::byte, 32>;

/// A member as its peers see it.
struct Peer {
  NodeId id;
  Incarnation incarnation;
  std::string fabric_address;
  FabricToken token{};     ///< for the connection between the receiver of this and that peer
  std::uint32_t nccl = 0;  ///< as in its Join
  /// The one with the higher id goes to the other: the other way round nobody was reached.
  bool reversed = false;
};

/// head -> worker: connect to that member again; the last connection broke.
struct Connect {
  Peer peer;
};
/// Why there is no connection to a peer.
enum class LinkFault : std::uint8_t {
  kBroke,   ///< there was one
  kNobody,  ///< none came about
  kOwnEnd,  ///< none can: it lies at the end that says so
};
/// How a connection ended, or did not come about.
struct LinkEnd {
  std::string reason;
  LinkFault fault = LinkFault::kBroke;
};
/// worker -> head: a peer cannot be reached on the bulk lane.
struct PeerUnreachable {
  NodeId peer;
  Incarnation incarnation;
  std::string reason;
  LinkFault fault = LinkFault::kBroke;
};

/// The HCA or network card behind an interface. What is not known is empty, or 0.
struct FabricAdapter {
  std::string name = {};         ///< "mlx5_0", as RDMA has it; empty for one without RDMA
  std::string pci_address = {};  ///< "0000:17:00.0"
  std::string vendor_id = {};    ///< "0x15b3"
  std::string device_id = {};    ///< "0x1021"
  std::string driver = {};       ///< "mlx5_core"
  std::string firmware = {};     ///< "28.39.1002"
  std::string network = {};      ///< "InfiniBand", "Ethernet"
  std::string state = {};        ///< "up", "down"
  std::uint64_t bits_per_s = 0;  ///< of its link, one way
  std::uint32_t mtu = 0;
  bool operator==(const FabricAdapter&) const = default;
};

/// What a worker's bulk lane goes by, and what it could have gone by. For people: what is not known
/// is empty, or below 0.
struct FabricPort {
  std::string provider = {};                 ///< "net"
  std::string provider_why = {};             ///< it was chosen
  std::vector<std::string> providers = {};   ///< that work at its address, best first
  std::string interface = {};                ///< "eth0"
  std::string interface_why = {};            ///< it was chosen
  std::vector<std::string> interfaces = {};  ///< all of its machine that are up, by name
  std::int32_t numa_node = -1;          ///< of the interface
  std::int32_t speed_mbit = -1;         ///< of the interface, as its driver says
  FabricAdapter adapter = {};
  bool operator==(const FabricPort&) const = default;
};
/// Of each of its lists.
inline constexpr std::size_t kFabricNamesMax = 64;

// --- Measuring ----------------------------------------------------------------------------------

/// What a tensor of a measurement may have.
inline constexpr std::uint32_t kProbeBytesMax = 16u << 20;
inline constexpr std::size_t kProbeSizesMax = 4;
/// Pairs that one measurement may have.
inline constexpr std::uint32_t kBenchPairsMax = 4096;

/// client -> head: measure the connections between workers. A NetworkPlan comes, PairReports, and
/// an OperationProgress that is finished; or that alone, with an error.
struct NetworkQuery {
  std::uint64_t query = 0;
  NodeId node;                       ///< only its pairs; 0: all
  std::uint32_t pairs_max = 0;       ///< no more than these; 0: kBenchPairsMax
  std::vector<std::uint32_t> sizes;  ///< of tensors, 1 byte to kProbeBytesMax; kProbeSizesMax
  bool while_serving = false;        ///< also while requests run
  bool one_at_a_time = false;        ///< pairs, even if they share no node
};

struct NetworkNode {
  NodeId id;
  std::string host;
  std::string address;  ///< of its bulk lane
  FabricPort port = {};
};
/// head -> client: what will be measured.
struct NetworkPlan {
  std::uint64_t query = 0;
  std::vector<NetworkNode> nodes;
  std::uint32_t pairs = 0;
  std::uint32_t left_out = 0;  ///< pairs beyond the limit
  std::uint32_t rounds = 0;    ///< in each of them a node is in one pair at most
};

/// Bytes a second, headers left out; 0: not measured, the link is too slow for such tensors.
struct LinkRate {
  std::uint32_t bytes = 0;  ///< of a tensor
  double there = 0;         ///< from the pair's lower node to the other
  double back = 0;
  bool operator==(const LinkRate&) const = default;
};
struct LinkFigures {
  std::uint32_t round_trips = 0;  ///< of messages without a tensor
  float p50_us = 0;
  float p99_us = 0;
  std::vector<LinkRate> rates;  ///< by size
  bool operator==(const LinkFigures&) const = default;
};
/// head -> client: what came of a pair.
struct PairReport {
  std::uint64_t query = 0;
  NodeId lower, higher;
  LinkFigures figures;
  std::uint32_t running = 0;        ///< sequences in the cluster meanwhile, at most
  std::optional<Error> error = {};  ///< why there are no figures
};

/// head -> worker, the one with the lower id: measure the connection to that peer, if there is one.
/// One at a time: a newer number takes the place of an older one.
struct MeasureLink {
  std::uint64_t number = 0;
  NodeId peer;
  Incarnation incarnation;
  std::vector<std::uint32_t> sizes;
};
/// head -> worker: nobody wants that any more.
struct EndMeasure {
  std::uint64_t number = 0;
};
/// worker -> head: what came of it.
struct LinkMeasured {
  std::uint64_t number = 0;
  LinkFigures figures = {};
  std::optional<Error> error = {};
};

/// worker -> worker, on the bulk lane: send this back, with that many bytes instead of its own.
/// Taken by the thread that brings it (actors/worker/link_meter.h).
struct LinkProbe {
  std::uint64_t number = 0;
  std::uint64_t sequence = 0;
  std::uint32_t reply_bytes = 0;  ///< at most kProbeBytesMax
  Payload payload = {};           ///< the same
};
struct LinkEcho {
  std::uint64_t number = 0;
  std::uint64_t sequence = 0;
  Payload payload = {};
};

}  // namespace troupe
