#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "model/grammar/compiled_grammar.h"
#include "model/grammar/token_trie.h"
#include "runtime/ids.h"

namespace troupe {

/// Where an answer stands in its grammar. A function of the grammar and the tokens accepted so far.
/// Not thread-safe; matchers of one grammar share what they find out.
///
/// Each step has a bound. An answer that its grammar reads in very many ways at once (hundreds) is
/// followed in some of them: what is offered then is less than all that could follow, always the
/// same, and leads to an end.
class GrammarMatcher {
 public:
  GrammarMatcher(std::shared_ptr<const CompiledGrammar> grammar,
                 std::shared_ptr<const TokenTrie> tokens);
  ~GrammarMatcher();
  GrammarMatcher(GrammarMatcher&&) noexcept;
  GrammarMatcher& operator=(GrammarMatcher&&) noexcept;

  /// The answer goes on with this token. False if it cannot: then nothing changes. It can with
  /// those that allowed() has, but where its stacks would need more than 256 MiB or the token some
  /// 50 ms: a grammar that reads what it says in thousands of ways.
  bool accept(TokenId token);
  /// What was accepted is a whole sentence of the grammar: the answer may end here.
  bool complete() const;
  /// Sets the bit of every token that may come next and clears all others: token t is bit t % 32 of
  /// word t / 32; bits past the vocabulary are clear. Whether the answer may end is complete()'s
  /// matter, tokens that end it are not among these. None at all where the grammar asks for bytes
  /// that no token has.
  void allowed(std::span<std::uint32_t> bits);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace troupe
