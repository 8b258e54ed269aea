#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "actors/worker/model_sizes.h"
#include "model/grammar/answer_grammars.h"
#include "model/kv_cache.h"
#include "model/spec/model_spec.h"

namespace troupe {

/// What the tokens of a checkpoint's tokenizer say. kNotFound if it has none.
AnswerGrammars::Words read_vocabulary(const std::string& folder, TokenId vocab_size);

/// The model of a checkpoint in the process's folder.
class CheckpointModel final : public ModelSizes {
 public:
  /// `words`: what its tokens say, for answers that follow a grammar.
  CheckpointModel(std::shared_ptr<const ModelSpec> spec, AnswerGrammars::Words words)
      : spec_(std::move(spec)), grammars_(std::make_shared<AnswerGrammars>(std::move(words))) {}
  const std::shared_ptr<const ModelSpec>& spec() const { return spec_; }
  const std::shared_ptr<AnswerGrammars>& grammars() const { return grammars_; }
  static KvCacheSpec cache_spec(const LayerRange& layers, std::int32_t blocks,
                                std::int32_t block_size);
  /// As a tensor-parallel rank has it.
  std::shared_ptr<const ModelSpec> spec(TensorRank rank) const;

  std::uint64_t expert_bytes(Numerics numerics) const override;
  std::uint64_t shard_bytes(Numerics numerics, const LayerRange& layers) const override;
  std::uint64_t cache_bytes(Numerics numerics, const LayerRange& layers, std::int32_t blocks,
                            std::int32_t block_size) const override;
  std::uint64_t row_bytes(Numerics numerics, std::uint32_t ranks) const override;

 private:
  const std::shared_ptr<const ModelSpec> spec_;
  const std::shared_ptr<AnswerGrammars> grammars_;
  mutable std::mutex mutex_;
  mutable std::map<TensorRank, std::shared_ptr<const ModelSpec>> parts_;  // guarded by mutex_
};

}  // namespace troupe
