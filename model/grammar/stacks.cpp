#include "model/grammar/stacks.h"

#include <algorithm>

namespace troupe::grammar {
namespace {

/// What is seen at one place: items, callees entered, nodes left.
enum class SeenKind : std::uint64_t { kItem, kEntered, kLeft };

std::uint64_t seen_key(SeenKind kind, std::uint64_t a, std::uint64_t b) {
  return static_cast<std::uint64_t>(kind) << 62 | a << 32 | b;
}

}  // namespace

void Stacks::Seen::clear() {
  ++stamp_;
  count_ = 0;
}

void Stacks::Seen::grow() {
  std::vector<Slot> old(slots_.size() * 2);
  old.swap(slots_);
  count_ = 0;
  for (const Slot& slot : old) {
    if (slot.stamp == stamp_) insert(slot.key, slot.value);
  }
}

std::uint32_t Stacks::Seen::insert(std::uint64_t key, std::uint32_t value) {
  if (2 * (count_ + 1) > slots_.size()) grow();
  const std::size_t mask = slots_.size() - 1;
  std::uint64_t hash = key * 0x9E3779B97F4A7C15ull;
  hash ^= hash >> 29;
  for (std::size_t i = hash & mask;; i = (i + 1) & mask) {
    Slot& slot = slots_[i];
    if (slot.stamp != stamp_) {
      slot = {key, stamp_, value};
      ++count_;
      return value;
    }
    if (slot.key == key) return slot.value;
  }
}

Stacks::Stacks(const Automaton& automaton, std::uint32_t count_max)
    : automaton_(&automaton), count_max_(count_max) {
  for (const std::uint32_t n : {kPop, kEnd}) {
    const std::uint32_t key[] = {0, n};
    groups_.intern(key);
    group_nodes_.push_back(n);
    Node node;
    node.group = n;
    nodes_.push_back(node);
  }
}

void Stacks::begin() {
  seen_.clear();
  work_.clear();
  fresh_count_ = 0;
  leaves_ = 0;
  visits_ = 0;
  work_end_ = work_done_ + kWorkMax;
}

Items Stacks::close(std::span<const Item> items) {
  begin();
  for (const Item& item : items) add(item.state, item.node);
  return finish();
}

Items Stacks::step(std::span<const Item> items, std::uint8_t byte) {
  begin();
  for (const Item& item : items) {
    work_done_ += automaton_->bytes_of(item.state).size();
    for (const Automaton::ByteEdge& e : automaton_->bytes_of(item.state)) {
      if (e.lo <= byte && byte <= e.hi) add(e.to, item.node);
    }
  }
  return finish();
}

Items Stacks::finish() {
  Items out;
  for (std::size_t i = 0; i < work_.size() && !too_much(); ++i) visit(work_[i], out);
  for (Item& item : out.items) {
    if ((item.node & kFresh) == 0) continue;
    if (!too_much()) make_reached(item.node - kFresh);
    item.node = fresh_[item.node - kFresh].node;
  }
  if (too_much()) {
    work_done_ = work_end_ + 1;  // in whatever order the rest would have come
    return {};
  }
  std::sort(out.items.begin(), out.items.end());
  out.items.erase(std::unique(out.items.begin(), out.items.end()), out.items.end());
  drop_dominated(out.items);
  return out;
}

void Stacks::add(std::uint32_t state, std::uint32_t node) {
  const auto index = static_cast<std::uint32_t>(work_.size());
  if (seen_.insert(seen_key(SeenKind::kItem, state, node), index) == index)
    work_.push_back({state, node});
}

void Stacks::visit(Item item, Items& out) {
  const Automaton& a = *automaton_;
  work_done_ += 1 + a.empties_of(item.state).size() + a.calls_of(item.state).size();
  for (const std::uint32_t to : a.empties_of(item.state)) add(to, item.node);
  for (const Automaton::CallEdge& call : a.calls_of(item.state)) {
    enter(call.callee, {call.to, item.node});
    if (a.callees[call.callee].min == 0) add(call.to, item.node);
  }
  if (!a.bytes_of(item.state).empty() || !a.tokens_of(item.state).empty())
    out.items.push_back(item);
  if (!a.states[item.state].accepts) return;
  if (item.node == kPop) {
    out.popped = true;
  } else if (item.node == kEnd) {
    out.ended = true;
  } else if ((item.node & kFresh) == 0) {
    leave(item.node);
  }
  // A fresh node that is left has matched nothing: its call was skipped already.
}

void Stacks::enter(std::uint32_t callee, Item edge) {
  const std::uint32_t index = seen_.insert(seen_key(SeenKind::kEntered, 0, callee), fresh_count_);
  if (index == fresh_count_) {
    if (fresh_.size() == fresh_count_) fresh_.emplace_back();
    Fresh& fresh = fresh_[fresh_count_++];
    const Automaton::Callee& c = automaton_->callees[callee];
    fresh.callee = callee;
    fresh.min_left = clipped(c.min);
    fresh.max_left = clipped(c.max);
    fresh.edges.clear();
    fresh.order = 0;
    add(c.start, kFresh + index);
  }
  fresh_[index].edges.push_back(edge);
}

void Stacks::leave(std::uint32_t n) {
  // Another state of its may have left it before.
  const std::uint32_t turn = ++leaves_;
  if (seen_.insert(seen_key(SeenKind::kLeft, 0, n), turn) != turn) return;
  const Node node = nodes_[n];
  work_done_ += node.edges_end - node.edges;
  const std::uint32_t min_left = decremented(node.min_left);
  const std::uint32_t max_left = decremented(node.max_left);
  if (min_left == 0) {
    for (std::uint32_t i = node.edges; i < node.edges_end; ++i)
      add(edges_[i].state, edges_[i].node);
  }
  if (max_left == 0) return;
  const std::uint32_t index = fresh_count_;
  if (fresh_.size() == fresh_count_) fresh_.emplace_back();
  Fresh& fresh = fresh_[fresh_count_++];
  fresh.callee = node.callee;
  fresh.min_left = min_left;
  fresh.max_left = max_left;
  fresh.edges.assign(edges_.begin() + node.edges, edges_.begin() + node.edges_end);
  fresh.order = 0;
  add(automaton_->callees[node.callee].start, kFresh + index);
}

}  // namespace troupe::grammar
