#include "actors/node_agent/weight_store.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <thread>
#include <utility>

#include "model/layer_weights.h"
#include "model/memory_estimate.h"
#include "runtime/log.h"

namespace troupe {
namespace {

/// Runs jobs 0..count-1 on some threads; stops at the first error.
Status run_jobs(std::size_t count, int threads, const std::atomic<bool>& cancelled,
                const std::function<Status(std::size_t)>& job) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first_error;
  std::atomic<bool> failed{false};
  const auto work = [&] {
    for (std::size_t i; !failed && !cancelled && (i = next.fetch_add(1)) < count;) {
      Status done;
      try {
        done = job(i);
      } catch (const std::exception& e) {
        done = resource_exhausted(std::string("Weights could not be loaded: ") + e.what() + ".");
      }
      if (done.ok()) continue;
      std::lock_guard lock(mutex);
      if (!first_error) first_error = done.error();
      failed = true;
    }
  };
  std::vector<std::thread> others;
  const auto helpers = std::min<std::size_t>(std::max(threads, 1), count) - (count > 0 ? 1 : 0);
  for (std::size_t i = 0; i < helpers; ++i) others.emplace_back(work);
  work();
  for (auto& thread : others) thread.join();
  if (first_error) return *first_error;
  if (cancelled) return troupe::cancelled("The load was given up for a newer one.");
  return {};
}

}  // namespace

std::set<WeightStore::ShardKey> WeightStore::shards_of(const WeightPart& part) {
  std::set<ShardKey> keys;
  for (const auto& shard : part.shards)
    keys.insert({part.numerics, shard.first_layer, shard.last_layer});
  return keys;
}

/// In their order, each once.
std::vector<WeightStore::HeldExpertKey> WeightStore::experts_of(
    Numerics numerics, const std::vector<LayerExperts>& layers) {
  std::vector<HeldExpertKey> keys;
  std::set<HeldExpertKey> seen;
  for (const auto& layer : layers)
    for (const auto& slot : layer.slots)
      if (const HeldExpertKey key{numerics, {layer.layer, slot.expert}}; seen.insert(key).second)
        keys.push_back(key);
  return keys;
}

std::uint64_t WeightStore::shard_size(const ShardKey& key) const {
  return shard_bytes(model_, key.numerics, key.first, key.last + 1);
}

std::uint64_t WeightStore::expert_size(Numerics numerics) const {
  return expert_bytes(model_, numerics);
}

// --- What is held -------------------------------------------------------------------------------

void WeightStore::take_checkpoint(const Checkpoint& checkpoint, Dropped& dropped) {
  if (checkpoint_hash_ == checkpoint.hash()) return;
  dropped.shards.swap(shards_);
  dropped.experts.swap(experts_);
  parts_.clear();
  held_bytes_ = 0;
  checkpoint_hash_ = checkpoint.hash();
  model_ = checkpoint.config();
}

WeightStore::Dropped WeightStore::drop_unwanted() {
  std::set<ShardKey> shards;
  std::set<HeldExpertKey> experts;
  for (const auto& [version, part] : parts_) {
    shards.merge(shards_of(part));
    for (const auto* layers : {&part.experts, &part.tier})
      for (const auto& key : experts_of(part.numerics, *layers)) experts.insert(key);
  }
  Dropped dropped;
  std::erase_if(shards_, [&](auto& entry) {
    if (shards.contains(entry.first)) return false;
    held_bytes_ -= shard_size(entry.first);
    dropped.shards.insert(std::move(entry));
    return true;
  });
  std::erase_if(experts_, [&](auto& entry) {
    if (experts.contains(entry.first)) return false;
    held_bytes_ -= expert_size(entry.first.numerics);
    dropped.experts.insert(std::move(entry));
    return true;
  });
  return dropped;
}

void WeightStore::retire(PlacementVersion version) {
  Dropped dropped;  // freed after the lock
  std::lock_guard lock(mutex_);
  if (!parts_.contains(version)) return;  // of an earlier membership
  std::erase_if(parts_, [&](const auto& entry) { return entry.first < version; });
  dropped = drop_unwanted();
}

void WeightStore::forget_versions() {
  std::lock_guard lock(mutex_);
  parts_.clear();
}

HeldWeights WeightStore::held() const {
  std::lock_guard lock(mutex_);
  HeldWeights held;
  for (const auto& [key, weights] : shards_) held.shards.push_back({key.first, key.last});
  std::map<std::int32_t, std::set<std::int32_t>> experts;
  for (const auto& [key, weights] : experts_) experts[key.expert.layer].insert(key.expert.expert);
  for (const auto& [layer, ids] : experts)
    held.experts.push_back({layer, {ids.begin(), ids.end()}});
  return held;
}

// --- Loading ------------------------------------------------------------------------------------

WeightStore::Missing WeightStore::missing_of(const WeightPart& part) const {
  Missing missing;
  for (const auto& key : shards_of(part)) {
    missing.total += shard_size(key);
    if (shards_.contains(key))
      missing.done += shard_size(key);
    else
      missing.shards.push_back(key);
  }
  for (const auto& key : experts_of(part.numerics, part.experts)) {
    missing.total += expert_size(key.numerics);
    if (experts_.contains(key))
      missing.done += expert_size(key.numerics);
    else
      missing.experts.push_back(key);
  }
  return missing;
}

bool WeightStore::lacks(const WeightPart& part) const {
  std::lock_guard lock(mutex_);
  const auto shards = shards_of(part);
  const auto experts = experts_of(part.numerics, part.experts);
  return std::any_of(shards.begin(), shards.end(),
                     [&](const auto& key) { return !shards_.contains(key); }) ||
         std::any_of(experts.begin(), experts.end(),
                     [&](const auto& key) { return !experts_.contains(key); });
}

Status WeightStore::read_expert(const Checkpoint& checkpoint, const HeldExpertKey& key) {
  auto weights = load_expert(checkpoint, key.numerics, key.expert.layer, key.expert.expert);
  if (!weights.ok()) return weights.error();
  std::lock_guard lock(mutex_);
  if (experts_.emplace(key, std::move(*weights)).second) held_bytes_ += expert_size(key.numerics);
  return {};
}

Status WeightStore::read_shard(const Checkpoint& checkpoint, const ShardKey& key) {
  auto weights = load_shard(checkpoint, key.numerics, key.first, key.last + 1);
  if (!weights.ok()) return weights.error();
  std::lock_guard lock(mutex_);
  if (shards_.emplace(key, std::move(*weights)).second) held_bytes_ += shard_size(key);
  return {};
}

Result<LoadedPart> WeightStore::load(const Checkpoint& checkpoint, PlacementVersion version,
                                     const WeightPart& part,
                                     std::optional<PlacementVersion> active,
                                     const Progress& progress) {
  Missing missing;
  {
    Dropped other, unwanted;  // freed after the lock
    std::lock_guard lock(mutex_);
    take_checkpoint(checkpoint, other);
    std::erase_if(parts_, [&](const auto& entry) { return !active || entry.first > *active; });
    parts_[version] = part;
    if (parts_.size() == 1) unwanted = drop_unwanted();
    missing = missing_of(part);
  }
  std::mutex done_mutex;
  std::uint64_t done = missing.done;
  const auto advance = [&](std::uint64_t bytes) {
    std::lock_guard lock(done_mutex);
    done += bytes;
    if (progress.on_progress) progress.on_progress(done, missing.total);
  };
  advance(0);
  const std::size_t experts = missing.experts.size();
  const Status read = run_jobs(
      experts + missing.shards.size(), progress.threads, progress.cancelled,
      [&](std::size_t i) -> Status {
        const Status got = i < experts ? read_expert(checkpoint, missing.experts[i])
                                       : read_shard(checkpoint, missing.shards[i - experts]);
        if (!got.ok()) return got.error();
        advance(i < experts ? expert_size(part.numerics) : shard_size(missing.shards[i - experts]));
        return {};
      });
  if (!read.ok()) return read.error();

  std::lock_guard lock(mutex_);
  LoadedPart loaded;
  for (const auto& shard : part.shards)
    loaded.shards.push_back(shards_.at({part.numerics, shard.first_layer, shard.last_layer}));
  for (const auto& layer : part.experts)
    for (const auto& slot : layer.slots)
      loaded.experts[slot.device.index][{layer.layer, slot.expert}] =
          experts_.at({part.numerics, {layer.layer, slot.expert}});
  return loaded;
}

// --- The second tier ----------------------------------------------------------------------------

namespace {

/// Keeps the expert's pages from being swapped out; false when the system does not let us. Small
/// matrices share their pages with others, and need no lock.
bool lock_into_memory(const ExpertWeights& weights) {
  constexpr std::size_t kOwnPagesBytesMin = 4u << 20;
  bool locked = true;
  for (const auto* matrix : {&weights.mlp.gate, &weights.mlp.up, &weights.mlp.down})
    if (matrix->bytes() >= kOwnPagesBytesMin)
      locked = mlock(matrix->panel(0), matrix->bytes()) == 0 && locked;
  return locked;
}

}  // namespace

/// Of the tier's experts that are not held, as many as its memory has room for.
std::vector<WeightStore::HeldExpertKey> WeightStore::missing_tier(const WeightPart& part) const {
  std::set<HeldExpertKey> served;
  for (const auto& [version, other] : parts_)
    for (const auto& key : experts_of(other.numerics, other.experts)) served.insert(key);
  std::uint64_t used = 0;
  for (const auto& [key, weights] : experts_)
    if (!served.contains(key)) used += expert_size(key.numerics);
  std::vector<HeldExpertKey> missing;
  for (const auto& key : experts_of(part.numerics, part.tier)) {
    if (experts_.contains(key)) continue;
    if (used + expert_size(key.numerics) > tier_memory_) break;
    used += expert_size(key.numerics);
    missing.push_back(key);
  }
  return missing;
}

Status WeightStore::load_tier(const Checkpoint& checkpoint, PlacementVersion version,
                              const Progress& progress) {
  std::vector<HeldExpertKey> missing;
  {
    std::lock_guard lock(mutex_);
    const auto part = parts_.find(version);
    if (part == parts_.end() || checkpoint_hash_ != checkpoint.hash()) return {};
    missing = missing_tier(part->second);
  }
  return run_jobs(missing.size(), progress.threads, progress.cancelled,
                  [&](std::size_t i) -> Status {
                    if (Status got = read_expert(checkpoint, missing[i]); !got.ok()) return got;
                    std::shared_ptr<const ExpertWeights> weights;
                    {
                      std::lock_guard lock(mutex_);
                      const auto held = experts_.find(missing[i]);
                      if (held != experts_.end()) weights = held->second;
                    }
                    if (!weights || lock_into_memory(*weights)) return {};
                    std::lock_guard lock(mutex_);
                    if (!std::exchange(lock_failed_, true))
                      spdlog::info(
                          "the second tier of experts cannot be locked into memory and may be "
                          "swapped out; raise the limit with ulimit -l");
                    return {};
                  });
}

}  // namespace troupe
