#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string_view>

#include "runtime/result.h"

namespace troupe {

/// A grammar's text (README.md) as a pushdown automaton over bytes. Immutable; shared between the
/// requests and threads that use it.
class CompiledGrammar {
 public:
  /// The version of what a grammar's text and the tokens so far allow next. A change that allows
  /// others anywhere is a new one: an answer that began under another does not go on in the next
  /// head, and members must be alike (transport/protocol.h).
  static constexpr std::uint32_t kMasksVersion = 2;
  /// More text is refused, before anything else is done with it.
  static constexpr std::size_t kTextBytesMax = 4u << 20;
  /// Calls among rules that begin with each other. Programming languages have a hundred.
  static constexpr std::size_t kLeftRecursionMax = 1000;

  /// kInvalidArgument says where and what is wrong: syntax, a rule that is not there or defined
  /// twice, no `root`, one that matches nothing at all; kResourceExhausted if its automaton would
  /// be too large, or too many rules begin with each other.
  static Result<std::shared_ptr<const CompiledGrammar>> compile(std::string_view text);

  ~CompiledGrammar();
  CompiledGrammar(const CompiledGrammar&) = delete;
  CompiledGrammar& operator=(const CompiledGrammar&) = delete;

  /// What it holds in memory, about, with the masks that were found.
  std::size_t bytes() const;

  struct Impl;
  const Impl& impl() const { return *impl_; }

 private:
  explicit CompiledGrammar(std::unique_ptr<const Impl> impl);
  std::unique_ptr<const Impl> impl_;
};

}  // namespace troupe
