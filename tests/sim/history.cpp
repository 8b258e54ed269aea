#include "tests/sim/history.h"

#include <algorithm>
#include <array>

#include "tests/sim/fake_model.h"
#include "tests/sim/loop.h"

namespace troupe::sim {
namespace {

using namespace std::chrono_literals;

constexpr std::array<const char*, kFaultKindsAll> kNames = {
    "kill",         "hang",        "cut from the head", "cut to the head",  "cut off the head",
    "cut off",      "cut pair",    "cut pair one way",  "reset pair",       "reset session",
    "device stuck", "device slow", "device fails",      "disk slow",        "loads fail",
    "weights gone", "drain",       "rebalance",         "hot experts",      "head dies",
    "kill all",     "disk hangs",  "disk denied",       "slow to the head", "slow pair",
    "sleep",        "head hangs",  "all sleep",         "corrupt answers",
    "other files",  "odd tensors", "flipped bit",       "broken kernels",
    "standby dies", "cut heads"};

std::int64_t in_ms(Duration d) {
  return std::chrono::duration_cast<std::chrono::milliseconds>(d).count();
}

Shape make_shape(Loop& random) {
  Shape shape;
  shape.workers = static_cast<int>(random.pick(2, 6));
  shape.devices = random.chance(70) ? 1 : 2;
  shape.min_devices =
      static_cast<int>(random.pick(1, static_cast<std::uint64_t>(shape.workers * shape.devices)));
  shape.tier_memory = random.chance(30) ? random.pick(1, 12) * 100 : 0;
  // One device may be lost for long: the others have to do.
  const auto stages = static_cast<std::uint64_t>(shape.workers - 1) * shape.devices;
  const auto most = std::min<std::uint64_t>(4, stages);
  shape.pipeline = static_cast<int>(random.pick(random.chance(40) ? most : 1, most));
  // The model takes some 7000 bytes with its experts, a replica of one stage 5400 on one device:
  // from many devices for one copy of it to room for all of it on each.
  const auto devices = static_cast<std::uint64_t>(shape.workers * shape.devices);
  const std::uint64_t least = std::max<std::uint64_t>(shape.pipeline == 1 ? 8 : 6, 24 / devices);
  shape.device_memory = random.pick(least, random.chance(40) ? least + 2 : 40) * 1000;
  shape.replicas = random.chance(50) ? 0 : static_cast<int>(random.pick(1, 2));
  shape.redundant = static_cast<int>(random.pick(0, 4));
  shape.block_size = 1 << random.pick(0, 4);
  shape.max_seqs = static_cast<int>(random.pick(1, 8));
  shape.max_batched = static_cast<int>(random.pick(4, 64));
  for (int w = 0; w < shape.workers; ++w)
    shape.starts.push_back(random.chance(80) ? random.pick_ms(0, 300) : random.pick_ms(500, 5000));
  if (random.chance(25))
    shape.small_worker = static_cast<int>(random.pick(0, shape.starts.size() - 1));
  // A rank takes as much memory here as one that has all of its layers.
  if (random.chance(35)) shape.tensor = random.chance(70) ? 2 : 4;
  shape.device_memory *= static_cast<unsigned>(shape.tensor);
  return shape;
}

/// Whether the model fits on the machines beside one that is in trouble.
bool can_do_without_one(const Shape& shape) {
  const int small = shape.small_worker >= 0 ? 1 : 0;
  const int devices = (shape.workers - 1 - small) * shape.devices;
  return devices >= shape.pipeline &&
         shape.device_memory >= 16'000 * static_cast<unsigned>(shape.tensor);
}

Fault make_fault(Loop& random, const Shape& shape, const Mix& mix) {
  Fault fault;
  fault.at = random.pick_ms(0, 6000);
  fault.worker = static_cast<int>(random.pick(0, static_cast<std::uint64_t>(shape.workers) - 1));
  fault.other = static_cast<int>(random.pick(0, static_cast<std::uint64_t>(shape.workers) - 1));
  if (fault.other == fault.worker) fault.other = (fault.worker + 1) % shape.workers;
  fault.lasts = random.chance(50) ? random.pick_ms(10, 400) : random.pick_ms(400, 3000);
  if (!mix.faults) {
    const FaultKind kinds[] = {FaultKind::kDrain, FaultKind::kRebalance, FaultKind::kHotExperts};
    fault.kind = kinds[random.pick(0, 2)];
    return fault;
  }
  if (mix.sleeps_only) {
    fault.kind = random.chance(50) ? FaultKind::kHeadHangs : FaultKind::kAllSleep;
    fault.lasts = random.pick_ms(10, 3000);
    return fault;  // one after the other: make_history() says when
  }
  do {
    fault.kind = static_cast<FaultKind>(random.pick(0, kFaultKinds - 1));
  } while (fault.kind == FaultKind::kHeadDies && !mix.head_dies);
  if (mix.mostly_head && random.chance(50)) fault.kind = FaultKind::kHeadDies;
  if (mix.standby && random.chance(50)) {
    const FaultKind heads[] = {FaultKind::kHeadDies, FaultKind::kHeadDies, FaultKind::kStandbyDies,
                               FaultKind::kCutHeads, FaultKind::kHeadHangs, FaultKind::kKillAll};
    fault.kind = heads[random.pick(0, 5)];
    // Members that hear nothing wait for limits::kLeasePause before they seek another head.
    if (fault.kind == FaultKind::kCutHeads && random.chance(60))
      fault.lasts = random.pick_ms(7000, 12000);
    return fault;
  }
  // What is between workers carries most of what can be lost.
  const FaultKind links[] = {FaultKind::kCutPair, FaultKind::kCutPairOneWay, FaultKind::kResetPair,
                             FaultKind::kSlowPair};
  if (random.chance(20)) fault.kind = links[random.pick(0, 3)];
  return fault;
}

RequestSpec make_request(Loop& random, const std::vector<Fault>& faults, const Mix& mix) {
  RequestSpec spec;
  spec.at = random.pick_ms(200, 7000);
  if (!faults.empty() && random.chance(50)) {  // under way during one
    const Fault& fault = faults[random.pick(0, faults.size() - 1)];
    const auto lasts = static_cast<std::uint64_t>(in_ms(std::min<Duration>(fault.lasts, 3s)));
    spec.at = std::max<Duration>(200ms, fault.at - 60ms + random.pick_ms(0, 60 + lasts));
  }
  for (std::uint64_t length = random.pick(1, 30); length > 0; --length)
    spec.prompt.push_back(static_cast<TokenId>(random.pick(0, kVocab - 1)));
  spec.max_tokens = static_cast<std::uint32_t>(random.pick(1, 30));
  spec.n = random.chance(85) ? 1 : static_cast<std::uint32_t>(random.pick(2, 3));
  spec.sampling.temperature = random.chance(50) ? 1.0f : 0.0f;
  spec.sampling.top_logprobs = random.chance(70) ? -1 : 2;
  spec.sampling.seed = random.draw();
  spec.stops = random.chance(50);
  spec.timeout = 3600s;
  if (mix.short_deadlines && random.chance(8)) spec.timeout = random.pick_ms(1, 1000);
  if (random.chance(10)) spec.cancel_after = random.pick_ms(1, 2000);
  return spec;
}

/// Prompts that begin like others, or go on from what another was answered, as conversations do;
/// KV caches that do not hold them all. Drawn apart from the rest, so that it changes nothing else.
void share_prefixes(History& history) {
  Loop random(history.seed * 104729 + 5);
  std::vector<RequestSpec>& requests = history.requests;
  // One sequence of the longest takes 1,024 bytes if its replica has one stage.
  if (random.chance(50)) history.shape.kv_memory = random.pick(1, 3) * 1024;
  if (random.chance(20)) return;
  for (std::size_t i = 1; i < requests.size(); ++i) {
    RequestSpec& spec = requests[i];
    const RequestSpec& other = requests[random.pick(0, i - 1)];
    if (random.chance(40) || spec.poison || other.poison || spec.odd || other.odd) continue;
    std::vector<TokenId> begin = other.prompt;
    if (random.chance(30)) {
      for (const TokenOutput& token :
           expected_of(other.prompt, other.sampling, other.max_tokens, other.stops).output)
        begin.push_back(token.token);
    }
    begin.resize(random.pick(1, std::min<std::uint64_t>(begin.size(), 30)));
    spec.prompt.insert(spec.prompt.begin(), begin.begin(), begin.end());
    spec.prompt.resize(std::min<std::size_t>(spec.prompt.size(), 30));
  }
}

/// How heads die: in the middle of a turn too, and of a write, with the power or without. Drawn
/// apart from the rest, so that it changes nothing else.
void choose_deaths(History& history) {
  Loop random(history.seed * 15485863 + 3);
  for (Fault& fault : history.faults) {
    if (fault.kind != FaultKind::kHeadDies && fault.kind != FaultKind::kStandbyDies) continue;
    if (random.chance(70)) fault.act = random.pick(1, 80);
    fault.power_cut = random.chance(50);
  }
}

}  // namespace

History make_history(std::uint64_t seed, const Mix& mix) {
  Loop random(seed * 7919 + 17);
  History history;
  history.seed = seed;
  history.shape = make_shape(random);
  history.shape.standby = mix.standby;
  const auto most = static_cast<std::uint64_t>(mix.faults_most);
  for (std::uint64_t n = random.pick(0, most); n > 0; --n)
    history.faults.push_back(make_fault(random, history.shape, mix));
  history.keeps_all = mix.sleeps_only;
  if (mix.sleeps_only)
    for (std::size_t i = 0; i < history.faults.size(); ++i)
      history.faults[i].at = 500ms + static_cast<int>(i) * 3500ms + random.pick_ms(0, 400);
  if (mix.lasting && can_do_without_one(history.shape)) {
    const int others = (history.shape.workers - 1) * history.shape.devices;
    history.shape.min_devices = std::min(history.shape.min_devices, others);
    constexpr FaultKind kinds[] = {
        FaultKind::kKill,     FaultKind::kHang,     FaultKind::kCutOff,    FaultKind::kStuck,
        FaultKind::kSlowHead, FaultKind::kSlowDisk, FaultKind::kDiskHangs, FaultKind::kDiskDenied,
        FaultKind::kOtherFiles, FaultKind::kOddTensors};
    const FaultKind kind = kinds[random.pick(0, std::size(kinds) - 1)];
    history.faults.push_back({kind, random.pick_ms(0, 6000), 30s, 0, 1, true});
  }
  for (std::uint64_t n = random.pick(4, 14); n > 0; --n)
    history.requests.push_back(make_request(random, history.faults, mix));
  if (mix.faults && mix.poison && random.chance(5)) {
    RequestSpec& spec = history.requests[random.pick(0, history.requests.size() - 1)];
    spec.prompt.back() = kPoison;
    spec.poison = true;
  }
  if (random.chance(20)) {
    RequestSpec& spec = history.requests[random.pick(0, history.requests.size() - 1)];
    spec.odd = !spec.poison;
    if (spec.odd) spec.prompt[random.pick(0, spec.prompt.size() - 1)] = kOdd;
  }
  share_prefixes(history);
  choose_deaths(history);
  return history;
}

std::string to_string(const Fault& fault) {
  std::string text = std::to_string(in_ms(fault.at)) +
                     " ms: " + kNames[static_cast<std::size_t>(fault.kind)] + ", worker " +
                     std::to_string(fault.worker);
  const bool pair = fault.kind == FaultKind::kCutPair || fault.kind == FaultKind::kCutPairOneWay ||
                    fault.kind == FaultKind::kResetPair || fault.kind == FaultKind::kSlowPair;
  if (pair) text += " and " + std::to_string(fault.other);
  if (fault.act > 0) text += ", at act " + std::to_string(fault.act);
  if (fault.power_cut) text += ", with the power";
  return text + ", for " + std::to_string(in_ms(fault.lasts)) + " ms";
}

bool has_poison(const History& history) {
  return std::any_of(history.requests.begin(), history.requests.end(),
                     [](const RequestSpec& request) { return request.poison; });
}

std::string to_string(const History& history) {
  const Shape& s = history.shape;
  std::string text = "seed " + std::to_string(history.seed) + ": " + std::to_string(s.workers) +
                     " workers of " + std::to_string(s.devices) + " devices of " +
                     std::to_string(s.device_memory) + " bytes (worker " +
                     std::to_string(s.small_worker) + " a quarter), at least " +
                     std::to_string(s.min_devices) + " devices, pipeline " +
                     std::to_string(s.pipeline) + ", tensor-parallel ranks " +
                     std::to_string(s.tensor) + ", replicas " + std::to_string(s.replicas) +
                     ", redundant experts " + std::to_string(s.redundant) + ", tier " +
                     std::to_string(s.tier_memory) + ", " +
                     std::to_string(history.requests.size()) + " requests\n";
  for (int w = 0; w < s.workers; ++w)
    text += "  " + std::to_string(in_ms(s.starts[static_cast<std::size_t>(w)])) + " ms: worker " +
            std::to_string(w) + " starts\n";
  for (const Fault& fault : history.faults) text += "  " + to_string(fault) + "\n";
  for (const RequestSpec& request : history.requests)
    if (request.poison || request.odd)
      text += "  " + std::to_string(in_ms(request.at)) + " ms: a request that " +
              (request.poison ? "kills its workers\n" : "the model has no number for\n");
  return text;
}

}  // namespace troupe::sim
