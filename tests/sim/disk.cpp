#include "tests/sim/disk.h"

#include "tests/sim/world.h"

namespace troupe::sim {
namespace {

std::set<ExpertKey> experts_of(const std::vector<LayerExperts>& layers) {
  std::set<ExpertKey> experts;
  for (const auto& layer : layers)
    for (const auto& slot : layer.slots) experts.insert({layer.layer, slot.expert});
  return experts;
}

std::set<Disk::Shard> shards_of(const Disk::Work& work) {
  std::set<Disk::Shard> shards;
  for (const auto& shard : work.shards) shards.insert({shard.first_layer, shard.last_layer});
  return shards;
}

}  // namespace

void Disk::load(const Work& work, const std::vector<Work>& kept, std::function<void(Status)> done) {
  const std::set<ExpertKey> experts = experts_of(work.experts);
  const std::set<Shard> shards = shards_of(work);
  std::set<ExpertKey> stay = experts;
  stay.merge(experts_of(work.tier));
  std::set<Shard> shards_stay = shards;
  for (const Work& other : kept) {
    stay.merge(experts_of(other.experts));
    stay.merge(experts_of(other.tier));
    shards_stay.merge(shards_of(other));
  }
  std::erase_if(experts_, [&](const ExpertKey& key) { return !stay.contains(key); });
  std::erase_if(shards_, [&](const Shard& shard) { return !shards_stay.contains(shard); });
  missing_experts_.clear();
  missing_shards_.clear();
  for (const ExpertKey& key : experts)
    if (!experts_.contains(key)) missing_experts_.push_back(key);
  for (const Shard& shard : shards)
    if (!shards_.contains(shard)) missing_shards_.push_back(shard);
  version_ = work.version;
  total_ = missing_experts_.size() + missing_shards_.size();
  done_ = std::move(done);
  const std::uint64_t load = ++load_;
  worker_.later(worker_.world().loop.pick_us(100, 2000), [this, load] { next(load); });
}

void Disk::next(std::uint64_t load) {
  if (load != load_) return;
  Loop& loop = worker_.world().loop;
  if (gone > 0) return done_(not_found("The checkpoint's files are gone."));
  if (failing > 0 && loop.chance(70)) return done_(unavailable("The file system hiccups."));
  if (missing_experts_.empty() && missing_shards_.empty()) return done_({});
  const bool shard = missing_experts_.empty();
  const int pace = slow ? 30 : 1;
  const Duration time = pace * (shard ? loop.pick_ms(3, 60) : loop.pick_us(300, 8000));
  worker_.later(time, [this, load, shard] {
    if (load != load_) return;
    if (shard) {
      shards_.insert(missing_shards_.back());
      missing_shards_.pop_back();
    } else {
      experts_.insert(missing_experts_.back());
      missing_experts_.pop_back();
    }
    const std::uint64_t left = missing_experts_.size() + missing_shards_.size();
    const LoadProgress news{version_, total_ - left, total_};
    worker_.with_agent([&](NodeAgent& agent, NodeAgentActions& actions) {
      agent.load_progress(news, worker_.clock(), actions);
    });
    next(load);
  });
}

void Disk::retire(const std::vector<Work>& kept) {
  std::set<ExpertKey> stay;
  std::set<Shard> shards_stay;
  for (const Work& work : kept) {
    stay.merge(experts_of(work.experts));
    stay.merge(experts_of(work.tier));
    shards_stay.merge(shards_of(work));
  }
  std::erase_if(experts_, [&](const ExpertKey& key) { return !stay.contains(key); });
  std::erase_if(shards_, [&](const Shard& shard) { return !shards_stay.contains(shard); });
  if (!kept.empty()) experts_.merge(experts_of(kept.back().tier));
}

void Disk::cancel() {
  ++load_;
  missing_experts_.clear();
  missing_shards_.clear();
}

void Disk::clear() {
  shards_.clear();
  experts_.clear();
  cancel();
}

std::vector<LayerRange> Disk::held_shards() const {
  std::vector<LayerRange> ranges;
  for (const auto& [first, last] : shards_) ranges.push_back({first, last});
  return ranges;
}

std::vector<HeldExperts> Disk::held_experts() const {
  std::vector<HeldExperts> layers;
  for (const auto& [layer, expert] : experts_) {
    if (layers.empty() || layers.back().layer != layer) layers.push_back({layer, {}});
    layers.back().experts.push_back(expert);
  }
  return layers;
}

}  // namespace troupe::sim
