#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>

#include "actors/base/post.h"
#include "actors/worker/loader.h"
#include "actors/worker/weight_source.h"
#include "model/checkpoint.h"

namespace troupe {

/// Weights from a checkpoint's files, read and packed by several threads at a time. A lease must
/// depend on none of it, so one thread reads and builds, and another one frees.
class FileSource final : public WeightSource {
 public:
  /// `post` must outlive it.
  FileSource(Post& post, int threads) : post_(post), threads_(threads) {}

  void listen(const Ref<NodeAgentInbox>& agent) override { agent_ = agent; }
  void inspect(const std::string& folder) override;
  void read(ReadOrder order) override;
  void build(std::shared_ptr<Preparation> preparation) override;
  void cancel() override { loader_.cancel(); }
  void free(Garbage garbage) override;

 private:
  // On the loader's thread.
  Status open(const std::string& folder);
  Status prepare(const ReadOrder& order);
  Status read_all(const ReadOrder& order, const std::atomic<bool>& cancelled);
  // On any of the reading threads.
  Status read_expert(const ReadOrder& order, const ExpertKey& key);
  Status read_shard(const ReadOrder& order, const LayerRange& layers);
  void lock_into_memory(const ExpertWeights& weights);

  Post& post_;
  const int threads_;
  Ref<NodeAgentInbox> agent_;

  // Set on the loader's thread only.
  std::shared_ptr<const Checkpoint> checkpoint_;
  bool doubted_ = false;  ///< reading from it failed

  std::atomic<bool> lock_failed_{false};  ///< said once
  std::mutex mutex_;
  Garbage garbage_;  // guarded by mutex_

  Loader loader_, cleaner_;  // last: their threads use what is above
};

}  // namespace troupe
