#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "runtime/clock.h"
#include "runtime/ids.h"
#include "runtime/sampling_params.h"

namespace troupe::sim {

enum class FaultKind : std::uint8_t {
  kKill,         ///< the process dies; its machine starts it again
  kHang,         ///< the process stands still: SIGSTOP, or a machine that is paused
  kCut,          ///< a worker and the head, both ways
  kCutToHead,    ///< one way
  kCutFromHead,  ///< one way
  kCutOff,       ///< a worker from everyone
  kCutPair,      ///< two workers, both ways, while both reach the head
  kCutPairOneWay,
  kResetPair,       ///< the connection of two workers ends, again and again
  kResetSession,    ///< a worker's connection to the head ends
  kStuck,           ///< its compute threads stand still, its sockets live
  kSlowDevice,      ///< its devices take 8 times as long
  kDeviceFails,     ///< one of its devices computes no more until the process restarts
  kSlowDisk,        ///< reading takes 30 times as long
  kLoadsFail,       ///< its loads fail, for a reason that passes
  kWeightsGone,     ///< its loads fail, for one that does not
  kDrain,           ///< somebody drains it; it comes back as a new process later
  kRebalance,       ///< somebody asks for it, and to have the links measured
  kHotExperts,      ///< some experts get most tokens
  kHeadDies,        ///< and starts again with the same state folder
  kKillAll,         ///< every worker at once
  kDiskHangs,       ///< no read ends
  kDiskDenied,      ///< no read succeeds
  kSlowHead,        ///< everything between a worker and the head takes 20 to 200 ms longer
  kSlowPair,        ///< the same between two workers
  kSleep,           ///< the process stands still, and its clock too: a machine that is suspended
  kHeadHangs,       ///< the head stands still
  kAllSleep,        ///< everybody stands still, with the clocks of half of them
  kCorruptAnswers,  ///< its experts' answers have a row too many
  kOtherFiles,      ///< it starts again with the weights of another revision
  kOddTensors,      ///< the same of some tensors only
  kFlippedBit,      ///< in its memory
  kBrokenKernels,   ///< one of its devices computes something else
  // Of clusters with a standby; not drawn from the others.
  kStandbyDies,
  kCutHeads,  ///< the head and its standby, and half of the workers from one of them
};
inline constexpr int kFaultKinds = 33;
inline constexpr int kFaultKindsAll = 35;

/// Heals by itself after `lasts`.
struct Fault {
  FaultKind kind = FaultKind::kKill;
  Duration at{};
  Duration lasts{};
  int worker = 0;
  int other = 0;         ///< of a pair
  bool lasting = false;  ///< the others have to do without that worker meanwhile
  // Of a head, or a standby, that dies.
  std::uint64_t act = 0;   ///< instead of the act of this number from then on; 0: then
  bool power_cut = false;  ///< and what its disk has not synced may be gone
};

/// What is made wrong in a simulated cluster, to show that it is found.
enum class Mutation : std::uint8_t {
  kNone,
  kKeptEarly,      ///< storage says that it has what it is only about to write
  kEndsKeptEarly,  ///< the same of all but acceptances
  kNoSync,         ///< files are not synced
  kOldTokens,      ///< a head hears what workers told the one before it
};

struct RequestSpec {
  Duration at{};
  std::vector<TokenId> prompt;
  std::uint32_t max_tokens = 1;
  std::uint32_t n = 1;
  SamplingParams sampling;  ///< with its seed
  bool stops = false;       ///< at kEos
  Duration timeout{};
  Duration cancel_after{};  ///< 0: never
  bool poison = false;      ///< kills the worker that computes it
  bool odd = false;         ///< the model has no number for it
};

/// What the cluster is made of.
struct Shape {
  int workers = 2;
  int devices = 1;  ///< a worker
  std::uint64_t device_memory = 0;
  std::uint64_t kv_memory = 0;  ///< as --kv-cache-memory
  int small_worker = -1;  ///< whose devices have a quarter of it; -1: nobody's
  std::uint64_t tier_memory = 0;
  int min_devices = 1;
  int pipeline = 1;
  int tensor = 1;
  int replicas = 0;  ///< as --data-parallel-size
  int redundant = 0;
  bool standby = false;
  int block_size = 4;
  int max_seqs = 8;
  int max_batched = 32;
  std::vector<Duration> starts;  ///< of each worker

  std::uint64_t memory_of(int worker) const {
    return worker == small_worker ? device_memory / 4 : device_memory;
  }
};

/// Everything about one life of a cluster that was decided beforehand. With `seed`, which the
/// network and the disks draw from, it replays exactly.
struct History {
  std::uint64_t seed = 0;
  Shape shape;
  std::vector<Fault> faults;
  std::vector<RequestSpec> requests;
  bool keeps_all = false;  ///< nothing in it costs a member or a replay
  Mutation mutation = Mutation::kNone;
};

/// What a history may have in it.
struct Mix {
  bool faults = true;  ///< else only what operators do: joins, drains, rebalances
  bool head_dies = true;
  bool short_deadlines = true;
  bool poison = true;    ///< now and then a request that kills its workers
  bool lasting = false;  ///< one machine's trouble lasts, and the others have to do without it
  bool sleeps_only = false;  ///< no faults but that the head, or all, stand still
  bool mostly_head = false;  ///< half of the faults are that the head dies
  bool standby = false;  ///< the head has one, and half of the faults are about the two
  int faults_most = 10;
};
History make_history(std::uint64_t seed, const Mix& mix);

bool has_poison(const History& history);

std::string to_string(const Fault& fault);
std::string to_string(const History& history);

}  // namespace troupe::sim
