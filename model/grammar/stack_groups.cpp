// How nodes of stacks.h are made: circles of fresh nodes as one group, under one key.
//
// A key is the number of members, then for each: callee, min_left, max_left, the number of edges,
// and these as state and reference, sorted. A reference is twice a node, or twice a member and one.
#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "model/grammar/stacks.h"

namespace troupe::grammar {
namespace {

std::uint32_t to_node(std::uint32_t node) { return 2 * node; }
std::uint32_t to_member(std::size_t member) { return static_cast<std::uint32_t>(2 * member + 1); }
bool is_member(std::uint32_t reference) { return reference % 2 == 1; }

struct KeyMember {
  std::uint32_t callee = 0, min_left = 0, max_left = 0;
  std::vector<Item> edges;  // `node` is a reference
};

std::vector<KeyMember> read_key(std::span<const std::uint32_t> key) {
  std::vector<KeyMember> members(key[0]);
  std::size_t at = 1;
  for (KeyMember& member : members) {
    member.callee = key[at];
    member.min_left = key[at + 1];
    member.max_left = key[at + 2];
    member.edges.resize(key[at + 3]);
    at += 4;
    for (Item& edge : member.edges) {
      edge = {key[at], key[at + 1]};
      at += 2;
    }
  }
  return members;
}

std::vector<std::uint32_t> write_key(std::vector<KeyMember> members) {
  std::vector<std::uint32_t> key = {static_cast<std::uint32_t>(members.size())};
  for (KeyMember& member : members) {
    std::sort(member.edges.begin(), member.edges.end());
    member.edges.erase(std::unique(member.edges.begin(), member.edges.end()), member.edges.end());
    key.insert(key.end(), {member.callee, member.min_left, member.max_left,
                           static_cast<std::uint32_t>(member.edges.size())});
    for (const Item& edge : member.edges) key.insert(key.end(), {edge.state, edge.node});
  }
  return key;
}

}  // namespace

/// Whether all that may follow where `b` is what stands under a state may follow where `a` does:
/// they differ in their counts alone, and `a` needs no more runs and has no fewer.
bool Stacks::dominates(std::uint32_t a, std::uint32_t b) const {
  const Node &x = nodes_[a], &y = nodes_[b];
  if (x.callee != y.callee || x.min_left > y.min_left || x.max_left < y.max_left) return false;
  const auto below = edges(a), other = edges(b);
  return std::equal(below.begin(), below.end(), other.begin(), other.end());
}

/// `(a|aa){0,9000}` may be anywhere between half of a text's length and all of it: the one with the
/// most runs left stands for all. Two nodes may say the same, one in a circle and one that stands
/// on that circle: then the first stays, which is the one of the circle in every graph, since the
/// other was made after it.
void Stacks::drop_dominated(std::vector<Item>& items) const {
  // So many are compared with each other; more have other reasons.
  constexpr std::size_t kComparedMax = 64;
  std::vector<Item> kept;
  for (std::size_t first = 0, last = 0; first < items.size(); first = last) {
    while (last < items.size() && items[last].state == items[first].state) ++last;
    const bool compared = last - first > 1 && last - first <= kComparedMax;
    for (std::size_t i = first; i < last; ++i) {
      const std::uint32_t node = items[i].node;
      bool dominated = false;
      for (std::size_t k = first; compared && node > kEnd && k < last && !dominated; ++k) {
        const std::uint32_t other = items[k].node;
        dominated = k != i && other > kEnd && dominates(other, node) &&
                    (k < i || !dominates(node, other));
      }
      if (!dominated) kept.push_back(items[i]);
    }
  }
  items = std::move(kept);
}

/// Tarjan's strongly connected components among the fresh nodes: what a circle stands on is made
/// before it.
void Stacks::make_reached(std::uint32_t root) {
  if (fresh_[root].order != 0) return;
  std::vector<std::pair<std::uint32_t, std::size_t>> frames;  // a fresh node, its next edge
  std::vector<std::uint32_t> open;
  const auto push = [&](std::uint32_t f) {
    fresh_[f].order = fresh_[f].low = ++visits_;
    fresh_[f].open = true;
    open.push_back(f);
    frames.emplace_back(f, 0);
  };
  push(root);
  while (!frames.empty()) {
    const std::uint32_t f = frames.back().first;
    if (frames.back().second < fresh_[f].edges.size()) {
      const std::uint32_t below = fresh_[f].edges[frames.back().second++].node;
      if ((below & kFresh) == 0) continue;
      const Fresh& other = fresh_[below - kFresh];
      if (other.order == 0) {
        push(below - kFresh);
      } else if (other.open) {
        fresh_[f].low = std::min(fresh_[f].low, other.order);
      }
      continue;
    }
    frames.pop_back();
    if (!frames.empty()) {
      Fresh& above = fresh_[frames.back().first];
      above.low = std::min(above.low, fresh_[f].low);
    }
    if (fresh_[f].low != fresh_[f].order) continue;
    const auto first = std::find(open.rbegin(), open.rend(), f).base() - 1;
    std::vector<std::uint32_t> members(first, open.end());
    open.erase(first, open.end());
    make_group(std::move(members));
  }
}

/// An edge into the key of a group. One that would only leave the node it leads to is left out for
/// what follows that: a list that is read by recursion at its end needs no deeper stack.
void Stacks::write_edge(Item edge, std::uint32_t self, std::vector<Item>& out) const {
  if ((edge.node & kFresh) != 0) {
    const std::uint32_t f = edge.node - kFresh;
    if (fresh_[f].open) {
      const bool leaves = edge.state == Automaton::kDone && fresh_[f].max_left == 1;
      if (leaves && f == self) return;
      out.push_back({edge.state, to_member(fresh_[f].member)});
      return;
    }
    edge.node = fresh_[f].node;
  }
  const Node& below = nodes_[edge.node];
  if (edge.state != Automaton::kDone || edge.node <= kEnd || below.max_left != 1) {
    out.push_back({edge.state, to_node(edge.node)});
    return;
  }
  for (const Item& next : edges(edge.node)) out.push_back({next.state, to_node(next.node)});
}

/// The same for edges whose nodes are references.
void Stacks::keep_dominant(std::vector<Item>& edges) const {
  if (edges.size() < 2) return;
  std::vector<Item> known, others;
  for (const Item& edge : edges) {
    if (is_member(edge.node)) {
      others.push_back(edge);
    } else {
      known.push_back({edge.state, edge.node / 2});
    }
  }
  std::sort(known.begin(), known.end());
  known.erase(std::unique(known.begin(), known.end()), known.end());
  drop_dominated(known);
  for (const Item& edge : known) others.push_back({edge.state, to_node(edge.node)});
  edges = std::move(others);
}

void Stacks::make_group(std::vector<std::uint32_t> members) {
  std::sort(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) {
    const Fresh &x = fresh_[a], &y = fresh_[b];
    return std::tie(x.callee, x.min_left, x.max_left, a) <
           std::tie(y.callee, y.min_left, y.max_left, b);
  });
  for (std::size_t i = 0; i < members.size(); ++i)
    fresh_[members[i]].member = static_cast<std::uint32_t>(i);
  std::vector<KeyMember> parts;
  for (const std::uint32_t f : members) {
    const Fresh& fresh = fresh_[f];
    KeyMember part{fresh.callee, fresh.min_left, fresh.max_left, {}};
    for (const Item& edge : fresh.edges) write_edge(edge, f, part.edges);
    work_done_ += part.edges.size();
    keep_dominant(part.edges);
    parts.push_back(std::move(part));
  }
  const std::vector<std::uint32_t> key = write_key(std::move(parts));
  work_done_ += key.size();
  std::uint32_t group = same_as_older(key);
  if (group == groups_.size()) group = intern_group(key);
  for (std::size_t i = 0; i < members.size(); ++i) {
    fresh_[members[i]].node = group_nodes_[group] + static_cast<std::uint32_t>(i);
    fresh_[members[i]].open = false;
  }
}

/// A circle that stands on another one and is the same if the two are: then they are. Each further
/// element of a list that is read in an ambiguous way would else stand on the one before.
std::uint32_t Stacks::same_as_older(std::span<const std::uint32_t> key) {
  // Where so many groups below it could be that one, none is looked at.
  constexpr std::size_t kTriesMax = 8;
  const std::vector<KeyMember> parts = read_key(key);
  std::vector<std::uint32_t> like;
  for (const KeyMember& part : parts) {
    for (const Item& edge : part.edges) {
      if (is_member(edge.node)) continue;
      const std::uint32_t group = nodes_[edge.node / 2].group;
      if (!circles_[group] || groups_[group][0] != parts.size() ||
          groups_[group][1] != parts[0].callee)
        continue;
      if (std::find(like.begin(), like.end(), group) != like.end()) continue;
      if (like.size() == kTriesMax) return groups_.size();
      like.push_back(group);
    }
  }
  work_done_ += key.size() * like.size();
  for (const std::uint32_t group : like) {
    std::vector<KeyMember> replaced = parts;
    for (KeyMember& p : replaced) {
      for (Item& e : p.edges) {
        if (!is_member(e.node) && nodes_[e.node / 2].group == group)
          e.node = to_member(e.node / 2 - group_nodes_[group]);
      }
    }
    const std::vector<std::uint32_t> other = write_key(std::move(replaced));
    const auto older = groups_[group];
    if (std::equal(other.begin(), other.end(), older.begin(), older.end())) return group;
  }
  return groups_.size();
}

std::uint32_t Stacks::intern_group(std::span<const std::uint32_t> key) {
  const std::uint32_t group = groups_.intern(key);
  if (group == group_nodes_.size()) add_nodes(group);
  return group;
}

void Stacks::add_nodes(std::uint32_t group) {
  const auto first = static_cast<std::uint32_t>(nodes_.size());
  group_nodes_.push_back(first);
  bool circle = false;
  std::uint32_t least = kMany;
  for (const KeyMember& member : read_key(groups_[group])) {
    Node node{member.callee,
              member.min_left,
              member.max_left,
              static_cast<std::uint32_t>(edges_.size()),
              0,
              group,
              kMany};
    for (const std::uint32_t count : {member.min_left, member.max_left}) {
      if (count > 1) least = std::min(least, count);
    }
    for (const Item& edge : member.edges) {
      circle = circle || is_member(edge.node);
      const std::uint32_t below = edge.node / 2;
      edges_.push_back({edge.state, is_member(edge.node) ? first + below : below});
      if (!is_member(edge.node)) least = std::min(least, nodes_[below].least);
    }
    node.edges_end = static_cast<std::uint32_t>(edges_.size());
    widest_ = std::max(widest_, member.edges.size());
    nodes_.push_back(node);
  }
  for (std::size_t n = first; n < nodes_.size(); ++n) nodes_[n].least = least;
  circles_.push_back(circle);
}

std::uint32_t Stacks::make(std::uint32_t callee, std::uint32_t min_left, std::uint32_t max_left,
                           Item edge) {
  const std::uint32_t key[] = {1, callee,     clipped(min_left), clipped(max_left),
                               1, edge.state, to_node(edge.node)};
  return group_nodes_[intern_group(key)];
}

/// Ascending, so that each comes behind those it stands on; without kPop's and kEnd's.
std::vector<std::uint32_t> Stacks::groups_under(std::span<const Item> items) const {
  std::vector<bool> reached(groups_.size(), false);
  std::vector<std::uint32_t> found;
  const auto reach = [&](std::uint32_t node) {
    const std::uint32_t group = nodes_[node].group;
    if (reached[group] || group <= kEnd) return;
    reached[group] = true;
    found.push_back(group);
  };
  for (const Item& item : items) reach(item.node);
  for (std::size_t i = 0; i < found.size(); ++i) {
    const std::uint32_t first = group_nodes_[found[i]];
    for (std::uint32_t n = first; n < first + groups_[found[i]][0]; ++n) {
      for (const Item& edge : edges(n)) reach(edge.node);
    }
  }
  std::sort(found.begin(), found.end());
  return found;
}

std::uint32_t Stacks::without_counts(std::uint32_t n) {
  if (nodes_[n].least == kMany) return n;
  uncounted_.resize(groups_.size(), kUnknown);
  const auto known = [&](std::uint32_t node) {
    if (nodes_[node].least == kMany) return node;
    const std::uint32_t group = nodes_[node].group;
    return group_nodes_[uncounted_[group]] + (node - group_nodes_[group]);
  };
  if (uncounted_[nodes_[n].group] != kUnknown) return known(n);
  const Item item{0, n};
  for (const std::uint32_t group : groups_under({&item, 1})) {
    if (nodes_[group_nodes_[group]].least == kMany || uncounted_[group] != kUnknown) continue;
    std::vector<KeyMember> parts = read_key(groups_[group]);
    for (KeyMember& part : parts) {
      if (part.min_left > 1) part.min_left = kMany;
      if (part.max_left > 1) part.max_left = kMany;
      for (Item& edge : part.edges) {
        if (!is_member(edge.node)) edge.node = to_node(known(edge.node / 2));
      }
    }
    uncounted_[group] = intern_group(write_key(std::move(parts)));
  }
  return known(n);
}

void Stacks::rewind(Mark mark) {
  if (mark.groups == groups_.size()) return;
  nodes_.resize(group_nodes_[mark.groups]);
  edges_.resize(nodes_.back().edges_end);
  group_nodes_.resize(mark.groups);
  circles_.resize(mark.groups);
  widest_ = mark.widest;
  // Of a group that stays, the one without counts may be among those that go.
  if (uncounted_.size() > mark.groups) uncounted_.resize(mark.groups);
  const auto gone = [&](std::uint32_t group) { return group != kUnknown && group >= mark.groups; };
  std::replace_if(uncounted_.begin(), uncounted_.end(), gone, kUnknown);
  groups_.shrink(mark.groups);
}

void Stacks::compact(std::vector<Item>& items, std::size_t edges_max) {
  Stacks kept(*automaton_, count_max_);
  std::map<std::uint32_t, std::uint32_t> renamed;  // groups
  const auto rename = [&](std::uint32_t node) {
    const std::uint32_t group = nodes_[node].group;
    if (group <= kEnd) return node;
    return kept.group_nodes_[renamed[group]] + (node - group_nodes_[group]);
  };
  for (const std::uint32_t group : groups_under(items)) {
    std::vector<KeyMember> parts = read_key(groups_[group]);
    for (KeyMember& part : parts) {
      std::size_t others = 0;
      std::erase_if(part.edges,
                    [&](const Item& e) { return !is_member(e.node) && ++others > edges_max; });
      for (Item& edge : part.edges) {
        if (!is_member(edge.node)) edge.node = to_node(rename(edge.node / 2));
      }
    }
    renamed[group] = kept.intern_group(write_key(std::move(parts)));
  }
  for (Item& item : items) item.node = rename(item.node);
  std::sort(items.begin(), items.end());
  items.erase(std::unique(items.begin(), items.end()), items.end());
  *this = std::move(kept);
}

std::size_t Stacks::bytes() const {
  return nodes_.size() * sizeof(Node) + edges_.size() * sizeof(Item) + groups_.bytes();
}

}  // namespace troupe::grammar
