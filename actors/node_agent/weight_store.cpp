#include "actors/node_agent/weight_store.h"

#include <algorithm>
#include <exception>
#include <optional>
#include <set>
#include <thread>

#include "model/memory_estimate.h"

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

Result<LoadedPart> WeightStore::load(const Checkpoint& checkpoint, const WeightPart& part,
                                     int threads, const std::atomic<bool>& cancelled,
                                     const OnProgress& on_progress) {
  if (checkpoint_hash_ != checkpoint.hash()) {
    shards_.clear();
    experts_.clear();
    checkpoint_hash_ = checkpoint.hash();
  }
  // What is not placed here any more goes first: its memory may be needed.
  std::set<ShardKey> wanted_shards;
  for (const auto& shard : part.shards)
    wanted_shards.insert({part.numerics, shard.first_layer, shard.last_layer});
  std::set<HeldExpertKey> wanted_experts;
  for (const auto& layer : part.experts)
    for (const auto& slot : layer.slots)
      wanted_experts.insert({part.numerics, {layer.layer, slot.expert}});
  std::erase_if(shards_, [&](const auto& e) { return !wanted_shards.contains(e.first); });
  std::erase_if(experts_, [&](const auto& e) { return !wanted_experts.contains(e.first); });

  const auto shard_size = [&](const ShardKey& k) {
    return shard_bytes(checkpoint.config(), part.numerics, k.first, k.last + 1);
  };
  const std::uint64_t expert_size = expert_bytes(checkpoint.config(), part.numerics);
  std::uint64_t total = wanted_experts.size() * expert_size;
  std::vector<ShardKey> new_shards;
  std::vector<HeldExpertKey> new_experts;
  std::uint64_t missing = 0;
  for (const auto& key : wanted_shards) {
    total += shard_size(key);
    if (shards_.contains(key)) continue;
    new_shards.push_back(key);
    missing += shard_size(key);
  }
  for (const auto& key : wanted_experts)
    if (!experts_.contains(key)) new_experts.push_back(key), missing += expert_size;

  std::mutex mutex;
  std::uint64_t done = total - missing;
  const auto advance = [&](std::uint64_t bytes) {
    done += bytes;
    held_bytes_ = done;
    on_progress(done, total);
  };
  held_bytes_ = done;
  on_progress(done, total);
  const Status read = run_jobs(
      new_shards.size() + new_experts.size(), threads, cancelled, [&](std::size_t i) -> Status {
        if (i < new_shards.size()) {
          const ShardKey key = new_shards[i];
          auto weights = load_shard(checkpoint, key.numerics, key.first, key.last + 1);
          if (!weights.ok()) return weights.error();
          std::lock_guard lock(mutex);
          shards_[key] = std::move(*weights);
          advance(shard_size(key));
        } else {
          const HeldExpertKey key = new_experts[i - new_shards.size()];
          auto weights = load_expert(checkpoint, key.numerics, key.expert.layer, key.expert.expert);
          if (!weights.ok()) return weights.error();
          std::lock_guard lock(mutex);
          experts_[key] = std::move(*weights);
          advance(expert_size);
        }
        return {};
      });
  if (!read.ok()) return read.error();

  LoadedPart loaded;
  for (const auto& shard : part.shards)
    loaded.shards.push_back(shards_.at({part.numerics, shard.first_layer, shard.last_layer}));
  for (const auto& layer : part.experts)
    for (const auto& slot : layer.slots)
      loaded.experts[slot.device.index][{layer.layer, slot.expert}] =
          experts_.at({part.numerics, {layer.layer, slot.expert}});
  return loaded;
}

}  // namespace troupe
