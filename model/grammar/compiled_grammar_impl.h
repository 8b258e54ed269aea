#pragma once

#include <cstddef>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "model/grammar/automaton.h"
#include "model/grammar/compiled_grammar.h"
#include "model/grammar/mask_cache.h"

namespace troupe {

struct CompiledGrammar::Impl {
  /// A process serves one model, or two while they change places.
  static constexpr std::size_t kVocabulariesMax = 2;

  explicit Impl(grammar::Automaton a) : automaton(std::move(a)) {}

  /// What is known about the masks under this vocabulary. Lives no longer than the grammar.
  std::shared_ptr<grammar::MaskCache> masks_for(
      const std::shared_ptr<const TokenTrie>& tokens) const;

  const grammar::Automaton automaton;

  mutable std::mutex mutex;
  mutable std::vector<std::shared_ptr<grammar::MaskCache>> masks;
};

}  // namespace troupe
