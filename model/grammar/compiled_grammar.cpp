#include "model/grammar/compiled_grammar.h"

#include <utility>

#include "model/grammar/compiled_grammar_impl.h"
#include "model/grammar/determinize.h"
#include "model/grammar/left_recursion.h"
#include "model/grammar/nfa.h"
#include "model/grammar/parse_grammar.h"

namespace troupe {

Result<std::shared_ptr<const CompiledGrammar>> CompiledGrammar::compile(std::string_view text) {
  if (text.size() > kTextBytesMax) {
    return invalid_argument("grammar: " + std::to_string(text.size()) + " bytes of text; " +
                            std::to_string(kTextBytesMax) + " may be");
  }
  const auto parsed = grammar::parse_grammar(text);
  if (!parsed.ok()) return parsed.error();
  const auto nfa = grammar::build_nfa(*parsed);
  if (!nfa.ok()) return nfa.error();
  auto impl = std::make_unique<const Impl>(grammar::determinize(*nfa));
  const std::size_t circle = grammar::widest_left_recursion(impl->automaton);
  if (circle > kLeftRecursionMax) {
    return resource_exhausted("grammar: rules begin with each other (left recursion) by " +
                              std::to_string(circle) + " calls; " +
                              std::to_string(kLeftRecursionMax) +
                              " may be. Let them begin with what tells them apart.");
  }
  return std::shared_ptr<const CompiledGrammar>(new CompiledGrammar(std::move(impl)));
}

CompiledGrammar::CompiledGrammar(std::unique_ptr<const Impl> impl) : impl_(std::move(impl)) {}
CompiledGrammar::~CompiledGrammar() = default;

std::size_t CompiledGrammar::bytes() const {
  std::size_t bytes = impl_->automaton.bytes();
  const std::lock_guard lock(impl_->mutex);
  for (const auto& masks : impl_->masks) bytes += masks->bytes_held();
  return bytes;
}

std::shared_ptr<grammar::MaskCache> CompiledGrammar::Impl::masks_for(
    const std::shared_ptr<const TokenTrie>& tokens) const {
  const std::lock_guard lock(mutex);
  for (const auto& known : masks) {
    if (known->tokens() == tokens.get()) return known;
  }
  if (masks.size() == kVocabulariesMax) masks.erase(masks.begin());
  masks.push_back(std::make_shared<grammar::MaskCache>(automaton, tokens));
  return masks.back();
}

}  // namespace troupe
