#include "actors/worker/file_source.h"

#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <functional>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/worker/checkpoint_model.h"
#include "actors/worker/preparation.h"
#include "model/layer_weights.h"
#include "model/weights.h"
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
  return {};
}

}  // namespace

// --- Checkpoints --------------------------------------------------------------------------------

Status FileSource::open(const std::string& folder) {
  if (checkpoint_ && !doubted_ && checkpoint_->folder() == folder) return {};
  auto opened = Checkpoint::open(folder);
  if (!opened.ok()) return opened.error();
  checkpoint_ = std::move(*opened);
  doubted_ = false;
  return {};
}

void FileSource::inspect(const std::string& folder) {
  loader_.run([this, folder](const std::atomic<bool>&) {
    doubted_ = true;  // the head has other files than the ones we know
    const Status opened = open(folder);
    if (!opened.ok()) {
      post_.tell(agent_, CheckpointInspected{opened.error()});
      return;
    }
    post_.tell(agent_,
               CheckpointInspected{InspectedCheckpoint{
                   checkpoint_->hash(),
                   std::make_shared<const CheckpointModel>(checkpoint_->config()), folder}});
  });
}

// --- Reading ------------------------------------------------------------------------------------

void FileSource::read(ReadOrder order) {
  loader_.run([this, order = std::move(order)](const std::atomic<bool>& cancelled) {
    Status read = prepare(order);
    if (read.ok()) read = read_all(order, cancelled);
    if (cancelled) return;
    if (!read.ok()) doubted_ = true;
    post_.tell(agent_, PartRead{order.version, order.tier, std::move(read)});
  });
}

/// What is in memory already needs no file.
Status FileSource::prepare(const ReadOrder& order) {
  if (order.experts.empty() && order.shards.empty()) return {};
  if (const Status opened = open(order.model_path); !opened.ok()) return opened;
  if (checkpoint_->hash() == order.checkpoint_hash) return {};
  return corrupt("The checkpoint at " + order.model_path +
                 " has changed since this worker joined; restore its files, or restart the "
                 "cluster with the new ones.");
}

Status FileSource::read_all(const ReadOrder& order, const std::atomic<bool>& cancelled) {
  const std::size_t experts = order.experts.size();
  return run_jobs(experts + order.shards.size(), threads_, cancelled, [&](std::size_t i) {
    return i < experts ? read_expert(order, order.experts[i])
                       : read_shard(order, order.shards[i - experts]);
  });
}

Status FileSource::read_expert(const ReadOrder& order, const ExpertKey& key) {
  auto weights = load_expert(*checkpoint_, order.numerics, key.layer, key.expert);
  if (!weights.ok()) return weights.error();
  if (order.tier) lock_into_memory(**weights);
  post_.tell(agent_, PieceRead{order.numerics, key, {}, true, std::move(*weights), nullptr});
  return {};
}

Status FileSource::read_shard(const ReadOrder& order, const LayerRange& layers) {
  auto weights = load_shard(*checkpoint_, order.numerics, layers.first, layers.last + 1);
  if (!weights.ok()) return weights.error();
  post_.tell(agent_, PieceRead{order.numerics, {}, layers, false, nullptr, std::move(*weights)});
  return {};
}

/// Keeps the expert's pages from being swapped out, if the system lets us. Small matrices share
/// their pages with others, and need no lock.
void FileSource::lock_into_memory(const ExpertWeights& weights) {
  constexpr std::size_t kOwnPagesBytesMin = 4u << 20;
  bool locked = true;
  for (const auto* matrix : {&weights.mlp.gate, &weights.mlp.up, &weights.mlp.down})
    if (matrix->bytes() >= kOwnPagesBytesMin)
      locked = mlock(matrix->panel(0), matrix->bytes()) == 0 && locked;
  if (!locked && !lock_failed_.exchange(true))
    logger().info(
        "the second tier of experts cannot be locked into memory and may be swapped out; raise the "
        "limit with ulimit -l");
}

void FileSource::build(std::shared_ptr<Preparation> preparation) {
  loader_.run([this, preparation = std::move(preparation)](const std::atomic<bool>& cancelled) {
    Status built = preparation->build();
    if (!cancelled) post_.tell(agent_, PartBuilt{preparation, std::move(built)});
  });
}

// --- Freeing ------------------------------------------------------------------------------------

void FileSource::free(Garbage garbage) {
  {
    std::lock_guard lock(mutex_);
    garbage_.insert(garbage_.end(), std::make_move_iterator(garbage.begin()),
                    std::make_move_iterator(garbage.end()));
  }
  cleaner_.run([this](const std::atomic<bool>&) {
    Garbage taken;  // freed without the lock
    std::lock_guard lock(mutex_);
    taken.swap(garbage_);
  });
}

}  // namespace troupe
