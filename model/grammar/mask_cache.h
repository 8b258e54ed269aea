#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "model/grammar/automaton.h"
#include "model/grammar/configurations.h"
#include "model/grammar/sequence_table.h"
#include "model/grammar/stacks.h"
#include "model/grammar/token_trie.h"
#include "model/grammar/token_trie_nodes.h"

namespace troupe::grammar {

/// Which tokens may come next, found out once for every state of the automaton and shared by all
/// answers under one grammar. Thread-safe.
///
/// A part of the mask is what one item allows while its own callee is not left, whatever the stack
/// is: a function of the state alone, so it is computed once, by walking the tree of tokens. Where
/// the walk comes to the callee's end before a token's, it notes the tree's node; from these nodes
/// the walk goes on in what the stack says is next, and that is a part as well, found by the set of
/// nodes and the state.
///
///     "na│me": 12   part(root, string)  = tokens within the string, and the nodes of `me"`, `"`
///                   part(those, colon)  = tokens such as `me":`, and no nodes
///
/// A callee whose end is open (a number may always go on) would note far too many nodes. There the
/// walk sees the stack below, up to kContextFrames.
class MaskCache {
 public:
  /// What is kept; above it everything is forgotten and found again. A state with free text needs
  /// vocabulary / 8 bytes (16 KiB), one with structure a tenth of that; schemas have hundreds.
  static constexpr std::size_t kBytesMax = 32u << 20;

  MaskCache(const Automaton& automaton, std::shared_ptr<const TokenTrie> tokens);

  const TokenTrie* tokens() const { return tokens_.get(); }
  /// Held in memory, about, when a mask was last asked for.
  std::size_t bytes_held() const { return bytes_held_; }
  /// What a mask may cost, cold: nodes of the tree that are looked at, and what the stacks do for
  /// each step that is found (Stacks::work()). The dearest mask of JSONSchemaBench costs
  /// 780,000. Only a grammar that reads texts in very many ways at once comes here: a part
  /// that is looked at meanwhile may cost as much again, and a second look as much.
  static constexpr std::uint64_t kCostMax = 1'000'000;

  /// Sets the bits of the tokens that may follow where the items stand. Above kCostMax, of the
  /// shorter ones, so that there is a way on, the same ones each time.
  void add_allowed(const Stacks& stacks, std::span<const Item> items,
                   std::span<std::uint32_t> bits);

 private:
  static constexpr std::uint32_t kRootOnly = 0;  // the set of the tree's root
  static constexpr std::uint32_t kNoNode = 0xFFFFFFFF;
  static constexpr std::size_t kShares = 12;

  /// Tokens as a list, or as bits where that is shorter.
  struct Part {
    std::vector<TokenId> few;
    std::vector<std::uint32_t> bits;
    std::uint64_t cost = 0;
    std::uint32_t ends = 0;  ///< the set of nodes where the callee ends within a token
    bool has_ends = false;
    bool whole = false;  ///< nothing was left out for what it would have cost
  };
  /// To be looked at: from these nodes of the tree on, an item of the answer's stacks. `runs` of
  /// its callee were made since the answer stood there, the last one just now if `again`.
  struct Task {
    std::uint32_t nodes = 0;
    Item item;
    std::uint32_t runs = 0;
    bool again = false;
  };
  /// A stack of the answer as far as a walk sees it, and the node that it does not see any more.
  struct Context {
    std::uint32_t local = 0;
    std::uint32_t below = kNoNode;
    std::uint32_t runs = 0;
  };
  struct Found {
    Configurations configurations;
    SequenceTable node_sets;
    std::unordered_map<std::uint64_t, std::uint32_t> whole;                     // numbers of parts
    std::array<std::unordered_map<std::uint64_t, std::uint32_t>, kShares> cut;  // [share_]
    std::vector<Part> parts;
    std::size_t part_bytes = 0;
  };

  void reset();
  std::size_t bytes() const;
  bool run_all(const Stacks& stacks, std::span<const Item> items, std::span<std::uint32_t> bits);
  bool too_much() const;
  void run(const Stacks& stacks, const Task& task, std::span<std::uint32_t> bits);
  void add_contexts(const Stacks& stacks, std::uint32_t node, std::uint32_t runs, int frames,
                    std::vector<Context>& out);
  void leave(const Stacks& stacks, const Context& context, std::uint32_t nodes);
  void push(const Task& task);
  const Part& part(std::uint32_t nodes, std::uint32_t configuration, bool again);
  Part make_part(std::uint32_t nodes, std::uint32_t configuration, bool again);
  void walk_short(std::span<const std::uint32_t> roots, std::uint32_t configuration);
  bool walk(std::span<const std::uint32_t> roots, std::uint32_t configuration,
            std::uint32_t depth_max, std::uint64_t cost_max);
  void walk_below(std::uint32_t root, std::uint32_t configuration, std::uint32_t depth_max,
                  std::uint64_t cost_max);
  std::uint64_t cost() const { return looked_ + found_->configurations.charged(); }
  std::uint64_t cost_max() const { return kCostMax >> share_; }
  void take(std::uint32_t first, std::uint32_t last);

  const Automaton& automaton_;
  std::shared_ptr<const TokenTrie> tokens_;
  const TokenTree& tree_;
  std::mutex mutex_;
  std::unique_ptr<Found> found_;
  std::atomic<std::size_t> bytes_held_ = 0;

  // While the lock is held.
  int frames_max_ = 0;
  std::size_t share_ = 0;     // a part may cost kCostMax halved so often
  std::uint64_t looked_ = 0;  // at nodes of the tree, for a part
  std::vector<Task> tasks_;
  SequenceTable tasks_seen_;
  std::uint64_t spent_ = 0;          // on a mask, but for tasks
  std::size_t contexts_max_ = 1;     // of a task
  std::uint64_t pushes_ = 0;         // tasks, those that were there already included
  std::vector<TokenId> taken_;       // of walk()
  std::vector<std::uint32_t> ends_;  // of walk()
  std::vector<std::uint32_t> path_;  // of walk(): [depth] configurations
};

}  // namespace troupe::grammar
