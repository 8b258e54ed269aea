#include "actors/worker/file_source.h"

#include <malloc.h>
#include <sys/mman.h>

#include <algorithm>
#include <exception>
#include <filesystem>
#include <functional>
#include <iterator>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "actors/worker/checkpoint_model.h"
#include "actors/worker/preparation.h"
#include "model/placed_weights.h"
#include "model/renewed.h"
#include "model/weights.h"
#include "runtime/buffer.h"
#include "runtime/limits.h"
#include "runtime/log.h"
#include "runtime/numa.h"

namespace troupe {
namespace {

/// Runs jobs 0..count-1 on some threads; stops at the first error.
Status run_jobs(std::size_t count, int threads, const std::atomic<bool>& cancelled,
                const std::function<Status(std::size_t, Buffer& room)>& job) {
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> first_error;
  std::atomic<bool> failed{false};
  const auto work = [&] {
    Buffer room;
    for (std::size_t i; !failed && !cancelled && (i = next.fetch_add(1)) < count;) {
      Status done;
      try {
        done = job(i, room);
      } catch (const kernels::AcceleratorFailed& e) {  // its next probe takes it out
        done = unavailable(std::string("A device that weights go to or come from has failed: ") +
                           e.what() + ".");
      } catch (const std::bad_alloc&) {
        done = resource_exhausted(
            "There is not enough memory for what is to be loaded, as it is cut up now; lower "
            "--kv-cache-memory, or give the worker more with --device-memory.");
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

/// A shard that several threads read; who reads its last part hands it on.
struct ShardJob {
  LayerRange layers;
  std::unique_ptr<ShardLoader> loader;  ///< null: one copies it
  std::atomic<std::size_t> left;
};

/// A copy that does not arrive as it was packed: what it is copied from may be at fault, and is
/// looked at; the files have it too.
template <class Weights, class Read>
auto copied_or_read(const std::shared_ptr<kernels::Accelerator>& device, const Weights& source,
                    const ReadGoesOn& goes_on, const Read& read) {
  auto copied = copy_to(device, source, goes_on);
  if (copied.ok() || copied.error().code != ErrorCode::kCorrupt) return copied;
  logger().warn("{}; it is read again", copied.error().message);
  return read();
}

/// What that piece of an order is to be copied from; null: it is to be read.
template <class Weights>
std::shared_ptr<const Weights> source_of(const std::vector<std::shared_ptr<const Weights>>& sources,
                                         std::size_t piece) {
  return piece < sources.size() ? sources[piece] : nullptr;
}

Result<std::vector<std::unique_ptr<ShardJob>>> begin_shards(const Checkpoint& from,
                                                            const ReadOrder& order) {
  std::vector<std::unique_ptr<ShardJob>> jobs;
  for (std::size_t i = 0; i < order.shards.size(); ++i) {
    const LayerRange& layers = order.shards[i];
    if (source_of(order.shard_sources, i)) {
      jobs.push_back(std::make_unique<ShardJob>(layers, nullptr, 1));
      continue;
    }
    auto loader = ShardLoader::begin(from, order.numerics, layers.first, layers.last, layers.rank);
    if (!loader.ok()) return loader.error();
    const std::size_t parts = (*loader)->parts();
    jobs.push_back(std::make_unique<ShardJob>(layers, std::move(*loader), parts));
  }
  return jobs;
}

/// What weights were read and proven with lies between what stays: to the system with it.
void return_memory() { malloc_trim(0); }

Error hangs(const std::string& folder) {
  return not_found("Reading " + folder + " hangs: " + std::to_string(limits::kHungReadsMax) +
                   " earlier reads have not come back; look at this machine's storage, and "
                   "restart this worker.");
}

}  // namespace

/// Shared with jobs, which may hang and wake up when the source is gone.
struct FileSource::Core {
  Core(Post& post, int t, std::vector<Home> of_devices)
      : threads(t), homes(std::move(of_devices)), voice(std::make_shared<SourceVoice>(post)) {}

  std::shared_ptr<const Checkpoint> opened() {
    std::lock_guard lock(mutex);
    return checkpoint;
  }
  std::shared_ptr<const Checkpoint> opened_as(const std::string& folder) {
    std::lock_guard lock(mutex);
    return asked == folder ? checkpoint : nullptr;
  }
  Result<std::shared_ptr<const Checkpoint>> renew(const std::shared_ptr<const Checkpoint>& known);
  Status inspect(const std::string& folder, const std::atomic<bool>& cancelled);
  Status read(const ReadOrder& order, const std::atomic<bool>& cancelled);
  Status read(const Checkpoint& from, const ReadOrder& order, const std::atomic<bool>& cancelled);
  Status read_expert(const Checkpoint& from, const ReadOrder& order, std::size_t piece,
                     const Home& home, const Reading& reading);
  Status read_shard(const Checkpoint& from, ShardJob& shard,
                    const std::shared_ptr<const ShardWeights>& source, Numerics numerics,
                    std::size_t part, const Home& home, const Reading& reading);
  void give(PieceRead piece);
  void lock_into_memory(const ExpertWeights& weights);
  Home home_of(const ReadOrder& order, std::size_t piece) const;

  const int threads;
  const std::vector<Home> homes;
  const std::shared_ptr<SourceVoice> voice;
  std::atomic<bool> lock_failed{false};  ///< said once

  std::mutex mutex;
  std::string asked;                             // guarded by mutex; the folder's name
  std::shared_ptr<const Checkpoint> checkpoint;  // guarded by mutex; where that leads
  bool reopened = false;                         // guarded by mutex; its files had changed
  std::shared_ptr<CopyWatch> watch;              // guarded by mutex; null once the source is gone
};

FileSource::FileSource(Post& post, int threads, std::vector<Home> homes)
    : core_(std::make_shared<Core>(post, threads, std::move(homes))),
      watch_(std::make_shared<CopyWatch>(CopyWatch::Listener{
          [voice = core_->voice](CopyDiffers differs) { voice->tell(std::move(differs)); },
          [voice = core_->voice] { voice->tell(CopiesProven{}); },
          [homes = core_->homes](const HeldTensor& tensor) -> std::string {
            for (const Home& home : homes)
              if (tensor.device && home.device == tensor.device)
                return "device " + std::to_string(home.index);
            return "this host";
          }})),
      prover_(core_->voice) {
  core_->watch = watch_;
}

FileSource::~FileSource() {
  core_->voice->end();
  std::lock_guard lock(core_->mutex);
  core_->watch.reset();
}

void FileSource::listen(const Ref<NodeAgentInbox>& agent) { core_->voice->listen(agent); }

void FileSource::cancel() {
  loader_.cancel();
  prover_.cancel();
}

void FileSource::prove(std::vector<std::string> tensors) {
  prover_.prove(
      [core = core_]() -> Result<ProofReader::Opened> {
        const auto checkpoint = core->opened();
        if (!checkpoint) return not_found("This worker has read no checkpoint yet.");
        auto now = core->renew(checkpoint);
        if (!now.ok()) return now.error();
        std::lock_guard lock(core->mutex);
        return ProofReader::Opened{std::move(*now), core->reopened};
      },
      std::move(tensors));
}

// --- Checkpoints --------------------------------------------------------------------------------

void FileSource::inspect(const std::string& folder) {
  const auto core = core_;
  const auto tell = [core, folder](const Status& status) {
    if (!status.ok()) return core->voice->tell(CheckpointInspected{folder, status.error()});
    const auto checkpoint = core->opened();
    core->voice->tell(CheckpointInspected{
        folder,
        InspectedCheckpoint{checkpoint->hash(),
                            std::make_shared<const CheckpointModel>(
                                std::shared_ptr<const ModelSpec>(checkpoint, &checkpoint->spec()),
                                read_vocabulary(checkpoint->folder(), checkpoint->spec().vocab)),
                            checkpoint->folder()}});
  };
  loader_.run(
      [core, folder, tell](const std::atomic<bool>& cancelled) {
        const Status inspected = core->inspect(folder, cancelled);
        if (!cancelled) tell(inspected);
      },
      [tell, folder] { tell(hangs(folder)); });
}

/// As its files are now: what has changed is read again, and what comes is compared with what the
/// cluster knows. The head hears of it.
Result<std::shared_ptr<const Checkpoint>> FileSource::Core::renew(
    const std::shared_ptr<const Checkpoint>& known) {
  auto now = renewed(known);
  if (!now.ok()) return now.error();
  if (now->why.empty()) return known;
  std::lock_guard lock(mutex);
  if (checkpoint == known) {
    checkpoint = now->checkpoint;
    reopened = true;
    voice->tell(FilesChanged{now->why});
  }
  return now->checkpoint;
}

/// A model that is known already is read on from the files as they were opened first, as long as
/// they are the same. A link that leads elsewhere now leads to another model.
Status FileSource::Core::inspect(const std::string& folder, const std::atomic<bool>& cancelled) {
  std::error_code error;
  const auto place = std::filesystem::canonical(folder, error);
  auto opened = Checkpoint::open(error ? folder : place.string());
  if (!opened.ok()) return opened.error();
  const auto found = std::move(*opened);
  std::lock_guard lock(mutex);
  if (cancelled) return {};
  asked = folder;
  const bool same = checkpoint && checkpoint->folder() == found->folder() &&
                    checkpoint->hash() == found->hash() && checkpoint->unchanged().ok();
  if (same) return {};
  reopened = reopened || (checkpoint && checkpoint->hash() == found->hash());
  checkpoint = found;
  return {};
}

// --- Reading ------------------------------------------------------------------------------------

void FileSource::read(ReadOrder ordered) {
  const auto core = core_;
  const auto order = std::make_shared<const ReadOrder>(std::move(ordered));
  if (order->empty())  // what is in memory needs no file
    return loader_.run([core, order](const std::atomic<bool>& cancelled) {
      if (!cancelled) core->voice->tell(PartRead{order->version, order->tier, {}});
    });
  loader_.run(
      [core, order](const std::atomic<bool>& cancelled) {
        Status read = core->read(*order, cancelled);
        return_memory();
        if (!cancelled) core->voice->tell(PartRead{order->version, order->tier, std::move(read)});
      },
      [core, order] {
        core->voice->tell(PartRead{order->version, order->tier, hangs(order->model_path)});
      });
}

Status FileSource::Core::read(const ReadOrder& order, const std::atomic<bool>& cancelled) {
  const auto opened = opened_as(order.model_path);
  if (!opened || opened->hash() != order.checkpoint_hash)
    return corrupt("The checkpoint at " + order.model_path +
                   " is not the one that this worker joined with; restart it.");
  // What is only copied needs no storage.
  if (order.copies()) return read(*opened, order, cancelled);
  const auto fresh = renew(opened);
  if (!fresh.ok()) return fresh.error();
  const Status done = read(**fresh, order, cancelled);
  // It was written to meanwhile; the next try reads what it has become.
  if (!done.ok() && !(*fresh)->trusted().ok()) return unavailable(done.error().message);
  return done;
}

Status FileSource::Core::read(const Checkpoint& from, const ReadOrder& order,
                              const std::atomic<bool>& cancelled) {
  const ReadGoesOn goes_on = [&] { return !cancelled; };
  auto begun = begin_shards(from, order);
  if (!begun.ok()) return begun.error();
  std::vector<std::unique_ptr<ShardJob>>& shards = *begun;
  struct Part {
    std::size_t shard, part;
  };
  std::vector<Part> parts;
  for (std::size_t s = 0; s < shards.size(); ++s)
    for (std::size_t part = 0; part < shards[s]->left; ++part) parts.push_back({s, part});
  const std::size_t experts = order.experts.size();
  return run_jobs(experts + parts.size(), threads, cancelled, [&](std::size_t i, Buffer& room) {
    const std::size_t piece = i < experts ? i : experts + parts[i - experts].shard;
    const Home home = home_of(order, piece);
    const NumaScope near(home.numa_node);
    const Reading reading{goes_on, &room, home.device};
    if (i < experts) return read_expert(from, order, i, home, reading);
    const std::size_t shard = piece - experts;
    return read_shard(from, *shards[shard], source_of(order.shard_sources, shard), order.numerics,
                      parts[i - experts].part, home, reading);
  });
}

Status FileSource::Core::read_shard(const Checkpoint& from, ShardJob& shard,
                                    const std::shared_ptr<const ShardWeights>& source,
                                    Numerics numerics, std::size_t part, const Home& home,
                                    const Reading& reading) {
  std::shared_ptr<const ShardWeights> weights;
  if (source) {
    const LayerRange& l = shard.layers;
    auto copied = copied_or_read(home.device, *source, reading.goes_on, [&] {
      return load_shard(from, numerics, l.first, l.last, reading, l.rank);
    });
    if (!copied.ok()) return copied.error();
    weights = std::move(*copied);
  } else {
    if (const Status read = shard.loader->load(part, reading); !read.ok()) return read;
    if (--shard.left > 0) return {};
    weights = shard.loader->take();
  }
  const PieceTensors tensors(weights, &weights->tensors);
  give({numerics, {}, shard.layers, false, nullptr, std::move(weights), tensors, home.place()});
  return {};
}

/// Where what that piece of the order becomes should lie.
FileSource::Home FileSource::Core::home_of(const ReadOrder& order, std::size_t piece) const {
  if (piece >= order.devices.size() || order.devices[piece] >= homes.size()) return {};
  return homes[order.devices[piece]];
}

Status FileSource::Core::read_expert(const Checkpoint& from, const ReadOrder& order,
                                     std::size_t piece, const Home& home, const Reading& reading) {
  const ExpertKey& key = order.experts[piece];
  const auto source = source_of(order.expert_sources, piece);
  const auto read = [&] {
    return load_expert(from, order.numerics, key.layer, key.expert, reading);
  };
  auto weights = source ? copied_or_read(home.device, *source, reading.goes_on, read) : read();
  if (!weights.ok()) return weights.error();
  if (order.tier) lock_into_memory(**weights);
  const PieceTensors tensors(*weights, &(*weights)->tensors);
  give({order.numerics, key, {}, true, std::move(*weights), nullptr, tensors, home.place()});
  return {};
}

void FileSource::Core::give(PieceRead piece) {
  {
    std::lock_guard lock(mutex);
    if (watch) watch->add(piece.tensors);
  }
  voice->tell(std::move(piece));
}

/// Keeps the expert's pages from being swapped out, if the system lets us. Small matrices are not
/// worth a mapping each.
void FileSource::Core::lock_into_memory(const ExpertWeights& weights) {
  constexpr std::size_t kLockedBytesMin = 4u << 20;
  bool locked = true;
  for (const auto* matrix : {&weights.mlp.gate, &weights.mlp.up, &weights.mlp.down})
    if (matrix->bytes() >= kLockedBytesMin)
      locked = mlock(matrix->memory().data(), matrix->bytes()) == 0 && locked;
  if (!locked && !lock_failed.exchange(true))
    logger().info(
        "the second tier of experts cannot be locked into memory and may be swapped out; raise the "
        "limit with ulimit -l");
}

void FileSource::build(std::shared_ptr<Preparation> preparation) {
  loader_.run(
      [core = core_, preparation = std::move(preparation)](const std::atomic<bool>& cancelled) {
        Status built = preparation->build();
        return_memory();
        if (!cancelled) core->voice->tell(PartBuilt{preparation, std::move(built)});
      });
}

// --- Freeing ------------------------------------------------------------------------------------

/// What was not begun, or not ended, is added to what waits.
void FileSource::free(Garbage garbage) {
  {
    std::lock_guard lock(mutex_);
    garbage_.insert(garbage_.end(), std::make_move_iterator(garbage.begin()),
                    std::make_move_iterator(garbage.end()));
  }
  cleaner_.run([this](const std::atomic<bool>& cancelled) {
    std::unique_lock lock(mutex_);
    while (!garbage_.empty() && !cancelled) {
      PieceTensors piece = std::move(garbage_.back());
      garbage_.pop_back();
      lock.unlock();
      const bool proven = !piece || watch_->let_go(piece, cancelled);
      PieceTensors unproven = proven ? nullptr : std::move(piece);
      piece.reset();  // freed without the lock
      lock.lock();
      if (unproven) garbage_.push_back(std::move(unproven));
    }
  });
}

}  // namespace troupe
