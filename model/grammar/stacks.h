#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "model/grammar/automaton.h"
#include "model/grammar/sequence_table.h"

namespace troupe::grammar {

/// A state of the automaton, and the stack under it.
struct Item {
  std::uint32_t state = 0;
  std::uint32_t node = 0;
  auto operator<=>(const Item&) const = default;
};

/// All that an answer may be in at one place: every way to read it so far.
struct Items {
  std::vector<Item> items;  ///< sorted; those with an edge for a byte or a token
  bool popped = false;      ///< one of them may leave kPop
  bool ended = false;       ///< one of them may end at kEnd
  bool empty() const { return items.empty() && !popped && !ended; }
};

/// The stacks of a pushdown automaton, all in one graph: a node is a callee that was entered, with
/// the runs it still has, and the items to go on with when it returns (its edges).
///
///     root ── object ──┬── string        two readings of one text share what is below
///                      └── number
///
/// Nodes are hash-consed: equal stacks are one node, wherever they came from. A callee that is
/// entered at its own beginning (left recursion) is an edge from a node to itself; such circles are
/// made and compared as one group. So the node of a list that is read recursively stays the same
/// however long the list becomes.
class Stacks {
 public:
  static constexpr std::uint32_t kPop = 0;  ///< under it lies what this graph does not know
  static constexpr std::uint32_t kEnd = 1;  ///< under it lies the end of the answer
  /// Runs that are as good as unlimited.
  static constexpr std::uint32_t kMany = 0xFFFFFFFF;
  /// What one close() or step() may take, in units of work(): some 10 ms. A place that needs more
  /// is one that nothing goes on from.
  static constexpr std::uint64_t kWorkMax = 500'000;

  struct Node {
    std::uint32_t callee = 0;
    std::uint32_t min_left = 1;  ///< runs, this one included, before it may return
    std::uint32_t max_left = 1;  ///< runs, this one included, until it must
    std::uint32_t edges = 0;     ///< the first
    std::uint32_t edges_end = 0;
    std::uint32_t group = 0;
    std::uint32_t least = kMany;  ///< least_count(): of it and of those below
  };

  /// Counts above `count_max` are kMany: who looks only so many bytes ahead cannot tell.
  explicit Stacks(const Automaton& automaton, std::uint32_t count_max = kMany - 1);

  /// Where the items come to without another byte.
  Items close(std::span<const Item> items);
  /// Where they come to with this byte.
  Items step(std::span<const Item> items, std::uint8_t byte);

  const Node& node(std::uint32_t n) const { return nodes_[n]; }
  std::span<const Item> edges(std::uint32_t n) const {
    return {edges_.data() + nodes_[n].edges, nodes_[n].edges_end - nodes_[n].edges};
  }
  /// A node with one edge.
  std::uint32_t make(std::uint32_t callee, std::uint32_t min_left, std::uint32_t max_left,
                     Item edge);
  /// The smallest count of the stack that could go down and matter, or kMany. One run left (and at
  /// most one needed) is no count: nothing changes until it returns.
  std::uint32_t least_count(std::uint32_t n) const { return nodes_[n].least; }
  /// The same stack with those counts made kMany.
  std::uint32_t without_counts(std::uint32_t n);

  /// What close() and step() have done so far: items, edges and words of keys that were looked at,
  /// 10 to 40 ns each. A function of what they were asked, whatever the graph holds already.
  std::uint64_t work() const { return work_done_; }

  /// For undoing: forgets the nodes that were made since, as if they had never been.
  struct Mark {
    std::uint32_t groups = 0;
    std::size_t widest = 0;
  };
  Mark mark() const { return {groups_.size(), widest_}; }
  void rewind(Mark mark);
  /// Keeps only what the items stand on, and of each node the first edges, so many: some ways on
  /// are lost, what is left leads to an end as before. Renames the nodes.
  void compact(std::vector<Item>& items, std::size_t edges_max);
  /// The most edges that a node has had since.
  std::size_t widest() const { return widest_; }
  std::size_t bytes() const;

  static std::uint32_t decremented(std::uint32_t count) {
    return count == kMany || count == 0 ? count : count - 1;
  }

 private:
  /// A node in the making: entered at this very place.
  struct Fresh {
    std::uint32_t callee = 0;
    std::uint32_t min_left = 1;
    std::uint32_t max_left = 1;
    std::vector<Item> edges;  // their nodes may be fresh (kFresh + index)
    std::uint32_t node = 0;   // once it is made
    std::uint32_t order = 0;  // 0: not visited
    std::uint32_t low = 0;
    std::uint32_t member = 0;  // of its circle
    bool open = false;
  };
  static constexpr std::uint32_t kFresh = 1u << 31;
  static constexpr std::uint32_t kUnknown = 0xFFFFFFFF;

  /// What was seen at this place, by two numbers.
  class Seen {
   public:
    void clear();
    /// The value that the key has; `value` from now on if it had none.
    std::uint32_t insert(std::uint64_t key, std::uint32_t value);

   private:
    void grow();
    struct Slot {
      std::uint64_t key = 0;
      std::uint32_t stamp = 0;
      std::uint32_t value = 0;
    };
    std::vector<Slot> slots_ = std::vector<Slot>(64);
    std::uint32_t stamp_ = 1;
    std::size_t count_ = 0;
  };

  void add(std::uint32_t state, std::uint32_t node);
  void visit(Item item, Items& out);
  void enter(std::uint32_t callee, Item edge);
  void leave(std::uint32_t node);
  std::uint32_t clipped(std::uint32_t count) const { return count > count_max_ ? kMany : count; }
  void begin();
  Items finish();
  bool too_much() const { return work_done_ > work_end_; }
  void make_reached(std::uint32_t fresh);
  bool dominates(std::uint32_t a, std::uint32_t b) const;
  void drop_dominated(std::vector<Item>& items) const;
  void keep_dominant(std::vector<Item>& edges) const;
  void make_group(std::vector<std::uint32_t> members);
  void write_edge(Item edge, std::uint32_t self, std::vector<Item>& out) const;
  std::uint32_t same_as_older(std::span<const std::uint32_t> key);
  std::uint32_t intern_group(std::span<const std::uint32_t> key);
  void add_nodes(std::uint32_t group);
  std::vector<std::uint32_t> groups_under(std::span<const Item> items) const;

  const Automaton* automaton_;
  std::uint32_t count_max_;

  std::vector<Node> nodes_;
  std::vector<Item> edges_;
  std::size_t widest_ = 0;
  SequenceTable groups_;                        // the keys; the first two are kPop's and kEnd's
  std::vector<std::uint32_t> group_nodes_;      // [groups]: their first nodes
  std::vector<bool> circles_ = {false, false};  // [groups]: whether it stands on itself

  std::vector<std::uint32_t> uncounted_;  // [some groups]: without_counts(), once it is asked for

  std::uint64_t work_done_ = 0;
  std::uint64_t work_end_ = 0;  // of this close()
  std::vector<Item> work_;  // of close(): all items of the place, those from 0 on
  std::vector<Fresh> fresh_;
  std::uint32_t fresh_count_ = 0;
  std::uint32_t leaves_ = 0;
  std::uint32_t visits_ = 0;  // of make_reached()
  Seen seen_;
};

}  // namespace troupe::grammar
