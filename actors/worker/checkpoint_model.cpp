#include "actors/worker/checkpoint_model.h"

#include <algorithm>
#include <vector>

#include "model/kv_cache.h"
#include "model/spec/sizes.h"
#include "model/spec/split_model.h"
#include "model/step_travel.h"
#include "model/tokenizer/tokenizer.h"

namespace troupe {

AnswerGrammars::Words read_vocabulary(const std::string& folder, TokenId vocab_size) {
  const auto tokenizer = Tokenizer::load(folder);
  if (!tokenizer.ok()) return tokenizer.error();
  const TokenId count = std::min(vocab_size, (*tokenizer)->vocab_size());
  std::vector<std::string> texts;
  std::vector<bool> special;
  for (TokenId id = 0; id < count; ++id) {
    texts.emplace_back((*tokenizer)->token_bytes(id));
    special.push_back((*tokenizer)->is_special(id));
  }
  return Vocabulary::make(std::move(texts), special, vocab_size);
}

KvCacheSpec CheckpointModel::cache_spec(const LayerRange& layers, std::int32_t blocks,
                                        std::int32_t block_size) {
  return {layers.first, layers.last, blocks, block_size};
}

std::shared_ptr<const ModelSpec> CheckpointModel::spec(TensorRank rank) const {
  if (rank.alone()) return spec_;
  std::lock_guard lock(mutex_);
  auto& part = parts_[rank];
  if (!part) part = std::make_shared<const ModelSpec>(split_model(*spec_, rank));
  return part;
}

std::uint64_t CheckpointModel::expert_bytes(Numerics numerics) const {
  return troupe::expert_bytes(*spec_, numerics);
}

std::uint64_t CheckpointModel::shard_bytes(Numerics numerics, const LayerRange& layers) const {
  return troupe::shard_bytes(*spec(layers.rank), numerics, layers.first, layers.last);
}

std::uint64_t CheckpointModel::cache_bytes(Numerics numerics, const LayerRange& layers,
                                           std::int32_t blocks, std::int32_t block_size) const {
  return kv_cache_bytes(*spec(layers.rank), numerics, cache_spec(layers, blocks, block_size));
}

std::uint64_t CheckpointModel::row_bytes(Numerics numerics, std::uint32_t ranks) const {
  return step_row_bytes(*spec_, numerics, ranks);
}

}  // namespace troupe
