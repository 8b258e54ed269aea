#include "model/grammar/mask_cache.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace troupe::grammar {
namespace {

/// How far down the stack a walk sees through callees with open ends, and how many ways a place may
/// have there: a walk is made for each.
constexpr int kContextFrames = 3;
constexpr std::size_t kContextEdgesMax = 4;
constexpr std::size_t kFewItems = 16;
/// Looking a part up, and noting a task, in nodes of the tree.
constexpr std::uint64_t kContextCost = 16;
constexpr std::uint64_t kTaskCost = 8;

void set_bit(std::span<std::uint32_t> bits, TokenId id) {
  bits[static_cast<std::size_t>(id) / 32] |= 1u << (id % 32);
}

}  // namespace

MaskCache::MaskCache(const Automaton& automaton, std::shared_ptr<const TokenTrie> tokens)
    : automaton_(automaton),
      tokens_(std::move(tokens)),
      tree_(tokens_->impl().tree),
      path_(tree_.nodes[0].height + 1u) {
  reset();
}

void MaskCache::reset() {
  found_ = std::unique_ptr<Found>(
      new Found{Configurations(automaton_, tree_.nodes[0].height), {}, {}, {}, {}, 0});
  const std::uint32_t root[] = {0};
  found_->node_sets.intern(root);
}

std::size_t MaskCache::bytes() const {
  return found_->configurations.bytes() + found_->node_sets.bytes() + found_->part_bytes +
         found_->parts.size() * 32;
}

void MaskCache::add_allowed(const Stacks& stacks, std::span<const Item> items,
                            std::span<std::uint32_t> bits) {
  const std::lock_guard lock(mutex_);
  bytes_held_ = bytes();
  if (bytes_held_ > kBytesMax) {
    reset();
    bytes_held_ = bytes();
  }
  for (const Item& item : items) {
    for (const Automaton::TokenEdge& e : automaton_.tokens_of(item.state)) {
      if (e.id < tokens_->vocab_size()) set_bit(bits, e.id);
    }
  }
  // Where an answer can be read in many ways, walks that see far are made for each of them.
  frames_max_ = items.size() <= kFewItems ? kContextFrames : 1;
  share_ = 0;
  contexts_max_ = 1;
  if (run_all(stacks, items, bits)) return;
  // Each of the ways gets as much, so that none that the answer needs for its end is forgotten.
  const std::size_t ways = items.size() * contexts_max_;
  share_ = std::min(kShares - 1, static_cast<std::size_t>(std::bit_width(ways)));
  run_all(stacks, items, bits);
}

/// False if that would cost too much, with what was found so far.
bool MaskCache::run_all(const Stacks& stacks, std::span<const Item> items,
                        std::span<std::uint32_t> bits) {
  tasks_.clear();
  tasks_seen_.shrink(0);
  pushes_ = 0;
  for (const Item& item : items) {
    if (!automaton_.bytes_of(item.state).empty()) push({kRootOnly, item, 0, false});
  }
  spent_ = 0;
  for (std::size_t i = 0; i < tasks_.size() && !too_much(); ++i) run(stacks, Task(tasks_[i]), bits);
  return !too_much();
}

bool MaskCache::too_much() const { return spent_ + pushes_ * kTaskCost > kCostMax; }

void MaskCache::push(const Task& task) {
  ++pushes_;
  const std::uint32_t key[] = {task.nodes, task.item.state, task.item.node, task.runs, task.again};
  const std::uint32_t before = tasks_seen_.size();
  if (tasks_seen_.intern(key) == before) tasks_.push_back(task);
}

void MaskCache::run(const Stacks& stacks, const Task& task, std::span<std::uint32_t> bits) {
  std::vector<Context> contexts;
  add_contexts(stacks, task.item.node, task.runs, 0, contexts);
  contexts_max_ = std::max(contexts_max_, contexts.size());
  for (const Context& context : contexts) {
    if (too_much()) return;
    const Item item{task.item.state, context.local};
    // Where the answer stands, what the item comes to without a byte are items of their own.
    Configurations& c = found_->configurations;
    const std::uint64_t before = c.stacks().work();
    const std::uint32_t start = task.nodes == kRootOnly ? c.alone(item) : c.closed(item);
    spent_ += c.stacks().work() - before;
    const Part& p = part(task.nodes, start, task.again);
    for (std::size_t i = 0; i < p.bits.size(); ++i) bits[i] |= p.bits[i];
    for (const TokenId id : p.few) set_bit(bits, id);
    if (p.has_ends && context.below != kNoNode) leave(stacks, context, p.ends);
    spent_ += p.cost + kContextCost;
  }
}

void MaskCache::add_contexts(const Stacks& stacks, std::uint32_t node, std::uint32_t runs,
                             int frames, std::vector<Context>& out) {
  if (node == Stacks::kEnd) return out.push_back({Stacks::kEnd, kNoNode, 0});
  const Stacks::Node& n = stacks.node(node);
  const auto edges = stacks.edges(node);
  if (!automaton_.callees[n.callee].open || frames == frames_max_ ||
      edges.size() > kContextEdgesMax)
    return out.push_back({Stacks::kPop, node, runs});
  const auto left = [&](std::uint32_t count) {
    return count == Stacks::kMany ? count : count - std::min(count, runs);
  };
  for (const Item& edge : edges) {
    std::vector<Context> below;
    add_contexts(stacks, edge.node, 0, frames + 1, below);
    for (const Context& context : below) {
      const std::uint32_t local = found_->configurations.stacks().make(
          n.callee, left(n.min_left), left(n.max_left), {edge.state, context.local});
      out.push_back({local, context.below, context.runs});
    }
  }
}

/// What the stack says is next where `context.below`, which the walk did not see, has ended a run.
void MaskCache::leave(const Stacks& stacks, const Context& context, std::uint32_t nodes) {
  const Stacks::Node& n = stacks.node(context.below);
  const std::uint32_t runs = context.runs + 1;
  if (n.min_left <= runs) {
    for (const Item& edge : stacks.edges(context.below)) push({nodes, edge, 0, false});
  }
  if (n.max_left > runs)
    push({nodes, {automaton_.callees[n.callee].start, context.below}, runs, true});
}

const MaskCache::Part& MaskCache::part(std::uint32_t nodes, std::uint32_t configuration,
                                       bool again) {
  const std::uint64_t key = std::uint64_t{nodes} << 33 | std::uint64_t{configuration} << 1 | again;
  std::vector<Part>& parts = found_->parts;
  const auto whole = found_->whole.find(key);
  if (whole != found_->whole.end() && parts[whole->second].cost < cost_max())
    return parts[whole->second];
  const auto cut = found_->cut[share_].find(key);
  if (cut != found_->cut[share_].end()) return parts[cut->second];
  Part made = make_part(nodes, configuration, again);
  found_->part_bytes += sizeof(Part) + made.few.size() * sizeof(TokenId) + made.bits.size() * 4;
  (made.whole ? found_->whole : found_->cut[share_])
      .emplace(key, static_cast<std::uint32_t>(parts.size()));
  return parts.emplace_back(std::move(made));
}

MaskCache::Part MaskCache::make_part(std::uint32_t nodes, std::uint32_t configuration, bool again) {
  const auto set = found_->node_sets[nodes];
  const std::vector<std::uint32_t> roots(set.begin(), set.end());
  found_->configurations.begin_charges();
  looked_ = 1 + roots.size();
  Part made;
  made.whole = walk(roots, configuration, tree_.nodes[0].height, cost_max());
  if (!made.whole) walk_short(roots, configuration);
  made.cost = cost();
  // The callee may have ended where the walk began; not if a run of it has just begun there, for
  // then its last one has ended there, which was seen to.
  if (found_->configurations.popped(configuration) && !again)
    ends_.insert(ends_.end(), roots.begin(), roots.end());
  const std::size_t words = (static_cast<std::size_t>(tokens_->vocab_size()) + 31) / 32;
  if (taken_.size() > words) {
    made.bits.assign(words, 0);
    for (const TokenId id : taken_) set_bit(made.bits, id);
  } else {
    made.few.assign(taken_.begin(), taken_.end());
  }
  made.has_ends = !ends_.empty();
  if (made.has_ends) {
    std::sort(ends_.begin(), ends_.end());
    ends_.erase(std::unique(ends_.begin(), ends_.end()), ends_.end());
    made.ends = found_->node_sets.intern(ends_);
  }
  return made;
}

void MaskCache::take(std::uint32_t first, std::uint32_t last) {
  taken_.insert(taken_.end(), tree_.order.begin() + first, tree_.order.begin() + last);
}

/// Tokens of one byte, and longer ones while that does not cost as much again.
void MaskCache::walk_short(std::span<const std::uint32_t> roots, std::uint32_t configuration) {
  const std::uint64_t end = cost() + cost_max();
  std::vector<TokenId> taken;
  std::vector<std::uint32_t> ends;
  for (std::uint32_t depth = 1; depth <= tree_.nodes[0].height; ++depth) {
    const bool done = walk(roots, configuration, depth, end);
    if (!done && depth > 1) break;
    taken = taken_;
    ends = ends_;
    if (!done) break;
  }
  taken_ = std::move(taken);
  ends_ = std::move(ends);
}

/// Whether the tokens of so many bytes were all looked at.
bool MaskCache::walk(std::span<const std::uint32_t> roots, std::uint32_t configuration,
                     std::uint32_t depth_max, std::uint64_t cost_max) {
  taken_.clear();
  ends_.clear();
  for (const std::uint32_t root : roots) walk_below(root, configuration, depth_max, cost_max);
  return cost() < cost_max;
}

void MaskCache::walk_below(std::uint32_t root, std::uint32_t configuration, std::uint32_t depth_max,
                           std::uint64_t cost_max) {
  Configurations& c = found_->configurations;
  const std::uint32_t end = tree_.nodes[root].end;
  const std::uint32_t depth = tree_.nodes[root].depth;
  path_[0] = configuration;
  for (std::uint32_t n = root + 1; n < end && cost() < cost_max;) {
    ++looked_;
    const TokenTreeNode& node = tree_.nodes[n];
    const std::uint32_t level = node.depth - depth;
    std::uint32_t at = c.next(path_[level - 1], node.byte);
    if (at == Configurations::kDead) {
      n = node.end;
      continue;
    }
    at = c.within(at, node.height);
    const bool leaf = node.end == n + 1;
    if (c.popped(at)) {
      if (!leaf) ends_.push_back(n);
    } else if (!leaf && c.loops(at, node.kinds)) {
      take(node.first, tree_.nodes[node.end].first);
      n = node.end;
      continue;
    }
    take(node.first, tree_.nodes[n + 1].first);
    path_[level] = at;
    n = level < depth_max ? n + 1 : node.end;
  }
}

}  // namespace troupe::grammar
